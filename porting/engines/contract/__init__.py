"""The contract between engines, their chooser and those that ask for one; nothing here compiles or measures."""

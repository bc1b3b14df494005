"""What an engine, a chooser of engines and those that ask for one have in common; nothing here compiles or measures."""

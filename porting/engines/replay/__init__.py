"""The engine `replay`: the captured graph run literally, operator by operator."""

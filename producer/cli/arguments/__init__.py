"""The arguments of commands, apart from their work: the help needs no slow import and no extra."""

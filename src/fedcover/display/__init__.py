"""What a terminal shows: progress on stderr, tables on stdout; one file for each kind."""

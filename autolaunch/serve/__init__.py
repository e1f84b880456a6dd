"""What is typed into the one command to start: the stages before a race, profiles that fit, the decision."""

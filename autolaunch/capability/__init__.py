"""What can run here: facts and rule rows in, a verdict on every choice out, each with its reason."""

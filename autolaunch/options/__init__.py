"""autolaunch's own options: checked, kept apart from SGLang's, declared for click."""

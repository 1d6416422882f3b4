"""Pure decisions: now and chance are arguments, nothing is read and nothing is written."""

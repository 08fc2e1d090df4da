"""What a candidate is put through beyond its first answer. Each probe asks, judges, and says what a failure means."""

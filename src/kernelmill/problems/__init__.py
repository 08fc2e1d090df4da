"""Where modules come from, and what can be known of one before any model is asked."""

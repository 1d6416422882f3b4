"""Who calls, and what they may do: tokens, roles, the sign-in link with its session, and the rate limit."""

"""The supervisor: claims jobs, hands them to children, keeps their leases alive and reports outcomes."""

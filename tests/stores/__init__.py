"""Object stores: paths, leases, and jobs that have all they keep in one."""

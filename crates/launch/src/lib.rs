//! The process manager: starts, serves, watches and ends the ranks of a job.

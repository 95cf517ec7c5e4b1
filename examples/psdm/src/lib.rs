//! Kirchhoff pre-stack depth migration of a synthetic survey, reduced by ropewalk.

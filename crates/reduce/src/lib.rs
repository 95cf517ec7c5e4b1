//! Reductions that finish, exactly, when processes die in the middle.

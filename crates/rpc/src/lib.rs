//! Remote procedure calls over the fabric.

//! Contributions that come to other ranks as they are.

use std::sync::Arc;

use bytemuck::Pod;

use super::{Fold, FoldError, FoldObjects, Operation, elementwise, elementwise::Plain};

/// Vectors that are never combined.
pub(crate) fn carried<T: Pod + Send + Sync>(name: &str) -> Operation<Vec<T>> {
    elementwise(name, |left: T, _| left).infallible()
}

/// Bytes that are never combined, nor cut: others do not know their length.
pub(crate) fn carried_whole(name: &str) -> Operation<Vec<u8>> {
    Operation {
        name: name.to_owned(),
        element: "bytes".to_owned(),
        element_size: None,
        codec: Box::new(Plain),
        fold: Fold::Objects(Arc::new(Carried)),
        is_total: false,
    }
}

struct Carried;

impl FoldObjects for Carried {
    fn fold(&self, left: &[u8], _: &[u8]) -> Result<Vec<u8>, FoldError> {
        Ok(left.to_vec())
    }
}

//! The behaviours of every provider, over libfabric's providers. Where libfabric does not have one, its tests say so
//! and pass.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

#[path = "../../../fabric/tests/conformance/suite/mod.rs"]
mod suite;

use std::time::Duration;

use ropewalk_fabric::{BindError, Transports};
use suite::{Fabric, behaviours, conformance};

fn over(provider: &str) -> Option<Fabric> {
    let transports = Transports {
        external: Some(format!("ofi:{provider}")),
        ..Transports::default()
    };
    let fabric = Fabric {
        // libfabric does not always tell that nobody is there: this does.
        connect_timeout: Duration::from_secs(5),
        naps: provider == "shm",
        // Each endpoint takes tens of megabytes at libfabric.
        many: 30,
        ..Fabric::new(ropewalk_fabric_ofi::bind, transports)
    };
    match (fabric.bind)(fabric.options(0)) {
        Ok(_) => Some(fabric),
        Err(BindError::External { source, .. }) => {
            eprintln!("skipped: {source}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

conformance! {
    ofi_shm: crate::over("shm"),
    ofi_sockets: crate::over("sockets"),
    ofi_tcp: crate::over("tcp;ofi_rxm"),
}

//! libpmix, as C has it.

mod library;
mod module;
pub(crate) mod replies;
mod server;
pub(crate) mod types;
pub(crate) mod upcalls;
pub(crate) mod values;

pub use library::LoadError;
pub(crate) use server::Server;
pub use server::ServerError;

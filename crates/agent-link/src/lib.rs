//! The advisor link: by which the agent of a host tells the programs that save checkpoints when their job
//! will end, and hears when they have saved.
//!
//! The agent listens on an abstract UNIX socket with a random name ([`Listener`]). The variable [`VARIABLE`]
//! in a rank's environment names the socket and the rank. Nothing is left in the file system, and the link
//! also reaches programs behind wrappers that close inherited descriptors. Only processes of the agent's own
//! user are accepted.
//!
//! An advisor or a store connects by [`ProgramLink::from_env`]. Each message is one packet of nine bytes ([`ToAgent`],
//! [`ToProgram`]). No call waits for the other side, apart from [`ProgramLink::connect`], which waits a
//! second at most. A program whose link is broken or absent goes on without it.
//!
//! ```
//! use ropewalk_agent_link::{Kind, Listener, ProgramLink, ToAgent, ToProgram};
//!
//! let listener = Listener::bind("example-4711")?;
//! let mut program = ProgramLink::connect(&listener.value_for(3), Kind::Advisor)?;
//! let agent = listener.accept().expect("the program has connected");
//! assert_eq!(agent.receive()?, Some(ToAgent::Hello { rank: 3, kind: Kind::Advisor }));
//! agent.send(ToProgram::Notice { left_ms: 10_000 })?;
//! assert_eq!(program.receive(), Some(ToProgram::Notice { left_ms: 10_000 }));
//! # Ok::<(), std::io::Error>(())
//! ```

mod agent;
mod message;
mod program;

pub use agent::{Connection, Listener};
pub use message::{Kind, MESSAGE_SIZE, MessageError, NO_END, ToAgent, ToProgram};
pub use program::{ProgramLink, VARIABLE};

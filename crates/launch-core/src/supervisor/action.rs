//! The actions that the launcher's mind wants done.

use ropewalk_pmi as pmi;

use super::{groups::Asker, names::NameAsker};
use crate::{event::JobEvent, protocol::Down, tree::NodeId, verdict::Verdict};

/// An action that has to be done for a [`Supervisor`](super::Supervisor).
#[derive(Debug)]
pub enum Action {
    /// Agents do not do what they are told: end them, and then their ranks without them.
    AbandonAgents,
    /// Ask the name server that several jobs share, and say
    /// [what it answers](super::Supervisor::handle_names_answer).
    AskNames(NameAsker, pmi::Question),
    /// Tell whoever watches the job.
    Event(JobEvent),
    /// The job is over. The last action.
    Finished(Verdict),
    /// Read the host files that a spawn names, and say
    /// [what they hold](super::Supervisor::handle_host_files).
    ReadHostFiles(WantedSpawn),
    /// Send this to all agents.
    Send(Down),
    /// Tell the PMI server of an agent right below.
    SendPmi(NodeId, pmi::Down),
}

/// A spawn, and who wants it.
#[derive(Debug)]
pub struct WantedSpawn {
    pub(super) asker: Asker,
    pub(super) from: pmi::Process,
    /// The request.
    pub spawn: pmi::Spawn,
}

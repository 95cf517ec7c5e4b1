//! The process groups of the job, as an agent starts them.

use std::{ffi::CString, ops::Range, path::PathBuf};

use ropewalk_launch_core::{
    group_plan::GroupPlan,
    protocol::{Plan, StartError},
    tree::NodeId,
};
use ropewalk_names::HostId;

use super::{Agent, starting};
use crate::driver::process::Program;

/// A process group, and what its processes here run.
pub(super) struct OwnGroup {
    pub(super) plan: GroupPlan,
    pub(super) programs: Vec<Result<Started, StartError>>,
    /// The numbers on this host of its processes here.
    pub(super) indices: Range<usize>,
}

/// A program of the job, and the environment of its ranks but for the variables of each.
pub(super) struct Started {
    pub(super) program: Program,
    pub(super) environment: Vec<CString>,
    /// The files that libpmix may be in, if PMIx has a part in serving it.
    pub(super) pmix: Option<Vec<PathBuf>>,
    /// It is served by PMIx only.
    pub(super) needs_pmix: bool,
    /// It is a script, or runs others: nobody can say what it will load.
    pub(super) is_open: bool,
    /// The sentence about a rank of it that ended well and never asked for the others, if that is odd.
    pub(super) silent_end: Option<String>,
}

impl OwnGroup {
    pub(super) fn new(plan: &Plan, group: GroupPlan, host: HostId, indices: Range<usize>) -> Self {
        Self {
            programs: starting::programs(plan, &group, host),
            plan: group,
            indices,
        }
    }
}

impl Agent {
    /// Starts this host's part of a spawned group.
    pub(super) fn begin_group(&mut self, group: GroupPlan) {
        let options = self.plan.pmi_group(&group, NodeId::of(self.host));
        let ranks: Vec<_> = group.job_ranks(self.host).collect();
        if !self.mind.handle_group(group.first, options, &ranks) {
            return;
        }
        let indices = self.ranks.add(&ranks);
        let group = OwnGroup::new(&self.plan, group, self.host, indices);
        self.kit.groups.push(group);
        self.serve_pmix(self.kit.groups.len() - 1);
    }

    /// Nothing is left of a spawned group anywhere.
    pub(super) fn forget_group(&mut self, id: u32) {
        self.mind.handle_forget(id);
        self.kit.groups.retain(|group| group.plan.id != id);
    }
}

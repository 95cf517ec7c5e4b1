//! The worker: fetches what a task needs, has it combined, and reports.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_membership::ProcessGroup;

use crate::{
    ids::{PartId, ReductionId, TaskId},
    message::{Announcement, Operand, Source, Task, TaskFailure, TaskOutcome, ToScheduler, ToWorker},
    outcome::{Receipt, ReductionError},
    pull_failure::PullFailure,
};

/// The worker of one rank: the paper's reduction executor.
///
/// A pure state machine. [`begin`](Self::begin) announces this rank's contribution to a reduction; messages of
/// the scheduler come in through [`handle_message`](Self::handle_message), and what was asked for in an action
/// is answered through [`handle_pulled`](Self::handle_pulled) and [`handle_combined`](Self::handle_combined).
/// After each call take the actions with [`drain_actions`](Self::drain_actions), in order.
#[derive(Debug, Default)]
pub struct Worker {
    reductions: BTreeMap<ReductionId, Local>,
    actions: Vec<WorkerAction>,
    /// Why nothing can be reduced any more.
    ended: Option<ReductionError>,
}

/// What the worker wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerAction {
    /// Combine the operands, or for a commit without a right operand take the left one as it is. Then answer
    /// with [`Worker::handle_combined`].
    Combine {
        /// Of which reduction.
        reduction: ReductionId,
        /// For which task.
        task: TaskId,
        /// The left operand.
        left: Input,
        /// The right operand.
        right: Option<Input>,
        /// What the product is for. With `Commit`, the token has to be checked.
        outcome: TaskOutcome,
    },
    /// The reduction is over on this rank; all that is kept for it can go.
    Complete {
        /// Which.
        reduction: ReductionId,
        /// How it ended.
        result: Result<Receipt, ReductionError>,
    },
    /// Forget the pulls of a task, and what they brought.
    Forget {
        /// Which task.
        task: TaskId,
    },
    /// Stop serving these parts.
    Discard {
        /// Of which reduction.
        reduction: ReductionId,
        /// Which.
        parts: Vec<PartId>,
    },
    /// Fetch an operand, then answer with [`Worker::handle_pulled`].
    Pull {
        /// Of which reduction.
        reduction: ReductionId,
        /// For which task.
        task: TaskId,
        /// Which operand.
        side: Side,
        /// Where it is read.
        source: Source,
    },
    /// Send this to the scheduler.
    Send(ToScheduler),
}

/// Which operand of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The left one.
    Left,
    /// The right one.
    Right,
}

/// Where an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// This rank has it.
    Local(PartId),
    /// It was pulled for this task, as this operand.
    Pulled(PartId, Side),
}

#[derive(Debug)]
struct Local {
    /// This rank's index among the members: its own contribution's number in each stripe.
    index: u32,
    /// If these are not all ranks of the job.
    members: Option<ProcessGroup>,
    /// The partial results that this rank made and serves.
    made: Vec<PartId>,
    tasks: BTreeMap<TaskId, Active>,
}

#[derive(Debug)]
struct Active {
    task: Task,
    /// The operands that are being pulled.
    awaited: Vec<Side>,
    started: Duration,
}

impl Worker {
    /// A worker with nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// This rank, member number `index` of the reduction's group, contributes. After [`fail_all`](Self::fail_all)
    /// the reduction ends at once.
    pub fn begin(&mut self, index: u32, announcement: Announcement) {
        if let Some(error) = &self.ended {
            let (reduction, result) = (announcement.contribution.reduction, Err(error.clone()));
            self.actions.push(WorkerAction::Complete { reduction, result });
            return;
        }
        let local = Local {
            index,
            members: announcement.contribution.members.clone(),
            made: Vec::new(),
            tasks: BTreeMap::new(),
        };
        self.reductions.insert(announcement.contribution.reduction, local);
        self.actions
            .push(WorkerAction::Send(ToScheduler::Announce(announcement)));
    }

    /// A message from the scheduler. One about a reduction that has ended here changes nothing.
    pub fn handle_message(&mut self, now: Duration, message: ToWorker) {
        match message {
            ToWorker::Task(task) => self.start(now, task),
            ToWorker::Cancel { reduction, task } => {
                let local = self.reductions.get_mut(&reduction);
                if local.and_then(|local| local.tasks.remove(&task)).is_some() {
                    self.actions.push(WorkerAction::Forget { task });
                }
            }
            ToWorker::Release { reduction, stripe } => {
                let Some(local) = self.reductions.get_mut(&reduction) else {
                    return;
                };
                let (parts, kept) = local.made.iter().partition(|part| part.stripe == stripe);
                local.made = kept;
                self.actions.push(WorkerAction::Discard { reduction, parts });
            }
            ToWorker::Finished { reduction, result } => self.end(reduction, result),
        }
    }

    /// A pull of a task has ended.
    pub fn handle_pulled(
        &mut self,
        reduction: ReductionId,
        task: TaskId,
        side: Side,
        result: Result<(), PullFailure>,
    ) {
        let Some(local) = self.reductions.get_mut(&reduction) else {
            return;
        };
        let Some(active) = local.tasks.get_mut(&task) else {
            return;
        };
        if !active.awaited.contains(&side) {
            return;
        }
        match result {
            Ok(()) => {
                active.awaited.retain(|&awaited| awaited != side);
                self.combine_if_complete(reduction, task);
            }
            Err(failure) => {
                let operand = match side {
                    Side::Left => Some(&active.task.left),
                    Side::Right => active.task.right.as_ref(),
                };
                let part = operand.map_or(active.task.left.part, |operand| operand.part);
                local.tasks.remove(&task);
                self.actions.push(WorkerAction::Forget { task });
                let failure = TaskFailure::Pull { part, failure };
                self.actions.push(WorkerAction::Send(ToScheduler::Failed {
                    reduction,
                    task,
                    failure,
                }));
            }
        }
    }

    /// The operands of a task were combined: where the product is read, if it is to be kept.
    pub fn handle_combined(
        &mut self,
        now: Duration,
        reduction: ReductionId,
        task: TaskId,
        result: Result<Option<Source>, TaskFailure>,
    ) {
        let Some(local) = self.reductions.get_mut(&reduction) else {
            return;
        };
        let Some(active) = local.tasks.remove(&task) else {
            return;
        };
        let message = match result {
            Ok(source) => {
                if let TaskOutcome::Keep(part) = active.task.outcome {
                    local.made.push(part);
                }
                let elapsed = now.saturating_sub(active.started);
                ToScheduler::Done {
                    reduction,
                    task,
                    source,
                    elapsed,
                }
            }
            Err(failure) => ToScheduler::Failed {
                reduction,
                task,
                failure,
            },
        };
        self.actions.push(WorkerAction::Send(message));
    }

    /// A reduction cannot go on here. If it has ended already, nothing changes; otherwise the scheduler hears of it, so
    /// that it ends on all.
    pub fn fail(&mut self, reduction: ReductionId, error: ReductionError) {
        if let Some(local) = self.reductions.get(&reduction) {
            let (members, message) = (local.members.clone(), error.to_string());
            self.actions.push(WorkerAction::Send(ToScheduler::Withdraw {
                reduction,
                members,
                message,
            }));
        }
        self.end(reduction, Err(error));
    }

    /// Nothing can be reduced any more, now or later, for instance since the scheduler is gone. The scheduler hears of it,
    /// in case that it lives, so that the others do not wait.
    pub fn fail_all(&mut self, error: &ReductionError) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(error.clone());
        for reduction in self.reductions.keys().copied().collect::<Vec<_>>() {
            self.end(reduction, Err(error.clone()));
        }
        self.leave();
    }

    /// Tells the scheduler, perhaps again, that this rank takes part in nothing any more, if that is so.
    pub fn leave(&mut self) {
        if let Some(error) = &self.ended {
            let message = error.to_string();
            self.actions
                .push(WorkerAction::Send(ToScheduler::Leave { message }));
        }
    }

    /// True if this rank takes part in nothing any more.
    pub fn has_left(&self) -> bool {
        self.ended.is_some()
    }

    /// Takes what is to be done, in order.
    pub fn drain_actions(&mut self) -> Vec<WorkerAction> {
        std::mem::take(&mut self.actions)
    }

    fn start(&mut self, now: Duration, task: Task) {
        let (reduction, id) = (task.reduction, task.id);
        let Some(local) = self.reductions.get_mut(&reduction) else {
            return;
        };
        let operands = [(Side::Left, Some(&task.left)), (Side::Right, task.right.as_ref())];
        let mut awaited = Vec::new();
        for (side, operand) in operands {
            if let Some(operand) = operand.filter(|operand| !local.has(operand.part)) {
                awaited.push(side);
                let source = operand.source.clone();
                self.actions.push(WorkerAction::Pull {
                    reduction,
                    task: id,
                    side,
                    source,
                });
            }
        }
        local.tasks.insert(
            id,
            Active {
                task,
                awaited,
                started: now,
            },
        );
        self.combine_if_complete(reduction, id);
    }

    fn combine_if_complete(&mut self, reduction: ReductionId, id: TaskId) {
        let Some(local) = self.reductions.get(&reduction) else {
            return;
        };
        let Some(active) = local.tasks.get(&id).filter(|active| active.awaited.is_empty()) else {
            return;
        };
        let input = |operand: &Operand, side| match local.has(operand.part) {
            true => Input::Local(operand.part),
            false => Input::Pulled(operand.part, side),
        };
        let left = input(&active.task.left, Side::Left);
        let right = active
            .task
            .right
            .as_ref()
            .map(|operand| input(operand, Side::Right));
        let outcome = active.task.outcome;
        self.actions.push(WorkerAction::Combine {
            reduction,
            task: id,
            left,
            right,
            outcome,
        });
    }

    fn end(&mut self, reduction: ReductionId, result: Result<Receipt, ReductionError>) {
        let Some(local) = self.reductions.remove(&reduction) else {
            return;
        };
        self.actions
            .extend(local.tasks.into_keys().map(|task| WorkerAction::Forget { task }));
        self.actions.push(WorkerAction::Complete { reduction, result });
    }
}

impl Local {
    fn has(&self, part: PartId) -> bool {
        part.number == self.index || self.made.contains(&part)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use ropewalk_membership::ProcessGroup;
    use ropewalk_names::Rank;

    use super::*;
    use crate::{
        ids::{GroupId, ReductionNumber, Token},
        message::{Contribution, PART_HEADER_SIZE},
        signature::{Order, Policy, Signature},
    };

    const NOW: Duration = Duration::ZERO;

    fn reduction() -> ReductionId {
        ReductionId {
            group: GroupId::of(&ProcessGroup::world(2)),
            number: ReductionNumber::Call(0),
        }
    }

    fn source() -> Source {
        let address = "sim://job".parse().unwrap();
        let handle = ropewalk_fabric::RegionHandle {
            address,
            region: 0,
            token: 0,
            length: 1000,
            writable: false,
        };
        Source {
            handle,
            data_offset: PART_HEADER_SIZE,
            length: 4,
        }
    }

    fn announcement() -> Announcement {
        let contribution = Contribution {
            reduction: reduction(),
            members: None,
            signature: Signature {
                operation: "sum".into(),
                element: "f32".into(),
                element_size: NonZeroU32::new(4),
                length: Some(4),
                root: Rank(0),
                order: Order::Any,
                policy: Policy::Chunked,
                stripe_size: 64,
            },
            token: Token(1),
            length: 4,
            timeout: None,
        };
        Announcement {
            contribution,
            handle: source().handle,
        }
    }

    /// Member 5 of a group, with a task that combines parts 1 and 2, which it does not have.
    fn with_a_task_of_two_pulls() -> Worker {
        let mut worker = Worker::new();
        worker.begin(5, announcement());
        let operand = |number| Operand {
            part: PartId { stripe: 0, number },
            source: source(),
        };
        worker.handle_message(
            NOW,
            ToWorker::Task(Task {
                reduction: reduction(),
                id: TaskId(1),
                left: operand(1),
                right: Some(operand(2)),
                outcome: TaskOutcome::Keep(PartId { stripe: 0, number: 9 }),
            }),
        );
        let actions = worker.drain_actions();
        assert!(matches!(
            actions[1..],
            [WorkerAction::Pull { .. }, WorkerAction::Pull { .. }]
        ));
        worker
    }

    /// Operands are combined once both are there.
    #[test]
    fn waits_for_both_operands() {
        let mut worker = with_a_task_of_two_pulls();
        worker.handle_pulled(reduction(), TaskId(1), Side::Right, Ok(()));
        assert!(worker.drain_actions().is_empty());
        worker.handle_pulled(reduction(), TaskId(1), Side::Left, Ok(()));
        assert!(matches!(
            worker.drain_actions()[..],
            [WorkerAction::Combine { .. }]
        ));
    }

    /// One failed pull fails the task once, and the other's end changes nothing.
    #[test]
    fn a_failed_pull_fails_its_task_once() {
        let mut worker = with_a_task_of_two_pulls();
        worker.handle_pulled(reduction(), TaskId(1), Side::Right, Err(PullFailure::NotHeld));
        let actions = worker.drain_actions();
        let [
            WorkerAction::Forget { .. },
            WorkerAction::Send(ToScheduler::Failed { failure, .. }),
        ] = &actions[..]
        else {
            panic!("{actions:?}")
        };
        assert_eq!(
            *failure,
            TaskFailure::Pull {
                part: PartId { stripe: 0, number: 2 },
                failure: PullFailure::NotHeld
            }
        );
        worker.handle_pulled(reduction(), TaskId(1), Side::Left, Ok(()));
        assert!(worker.drain_actions().is_empty());
    }

    /// A cancelled task is forgotten, and what its pulls bring is not combined.
    #[test]
    fn a_cancelled_task_is_forgotten() {
        let mut worker = with_a_task_of_two_pulls();
        worker.handle_message(
            NOW,
            ToWorker::Cancel {
                reduction: reduction(),
                task: TaskId(1),
            },
        );
        assert_eq!(worker.drain_actions(), [WorkerAction::Forget { task: TaskId(1) }]);
        worker.handle_pulled(reduction(), TaskId(1), Side::Left, Ok(()));
        worker.handle_pulled(reduction(), TaskId(1), Side::Right, Ok(()));
        assert!(worker.drain_actions().is_empty());
    }

    /// After all has failed, what is begun ends at once instead of being announced to nobody.
    #[test]
    fn nothing_begins_after_all_has_failed() {
        let mut worker = with_a_task_of_two_pulls();
        let error = ReductionError::SchedulerLost { rank: Rank(0) };
        worker.fail_all(&error);
        let ended = WorkerAction::Complete {
            reduction: reduction(),
            result: Err(error.clone()),
        };
        let message = error.to_string();
        let leave = WorkerAction::Send(ToScheduler::Leave { message });
        assert_eq!(
            worker.drain_actions(),
            [WorkerAction::Forget { task: TaskId(1) }, ended.clone(), leave]
        );
        worker.fail_all(&ReductionError::AgentLost);
        assert!(worker.drain_actions().is_empty());
        worker.begin(5, announcement());
        assert_eq!(worker.drain_actions(), [ended]);
    }
}

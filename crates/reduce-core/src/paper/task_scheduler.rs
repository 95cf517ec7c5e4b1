use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::ids::Member;

/// "A message that W_i sends to S when its reduction data is ready: the process W_i and the path P_i" (definition 4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReduceMessage {
    /// The process that holds the data.
    pub process: Member,
    /// The processes whose original data is folded in it (definition 5).
    pub path: BTreeSet<Member>,
    /// The data is the original of `process`, which the data-reliability store serves: the fault-tolerance flag.
    pub is_flagged: bool,
}

/// "W_i, P_i, W_j, P_j: W_i folds the data of W_j into its own" (definition 6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Counts the tasks of a reduction.
    pub number: u64,
    /// The message of the process that executes.
    pub executor: ReduceMessage,
    /// The message of the process whose data is pulled.
    pub provider: ReduceMessage,
}

/// Something that the master has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskAction {
    /// Send a task to the process that executes it.
    Assign(Task),
    /// Broadcast to all processes that the reduction is over, and how.
    End {
        /// The result is at the root; otherwise the root has failed.
        is_complete: bool,
    },
}

/// The queue Q and the scheduler S of one reduction, on the master.
///
/// The caller passes messages and failures in and drains [`poll_action`](Self::poll_action) after each.
#[derive(Debug)]
pub struct TaskScheduler {
    processes: u32,
    root: Member,
    queue: VecDeque<ReduceMessage>,
    /// By number.
    running: BTreeMap<u64, Task>,
    tasks: u64,
    /// The performance counter: the time of each process's last task.
    last_task: BTreeMap<Member, Duration>,
    failed: BTreeSet<Member>,
    has_ended: bool,
    actions: VecDeque<TaskAction>,
}

impl TaskScheduler {
    /// A reduction of so many processes to one of them.
    pub fn new(processes: u32, root: Member) -> Self {
        Self {
            processes,
            root,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            tasks: 0,
            last_task: BTreeMap::new(),
            failed: BTreeSet::new(),
            has_ended: false,
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<TaskAction> {
        self.actions.pop_front()
    }

    /// Step 1: a process has called reduce.
    pub fn handle_called(&mut self, process: Member) {
        self.enqueue(process, BTreeSet::from([process]), false);
        self.schedule();
    }

    /// The end of step 5: a process has executed a task in so much time.
    pub fn handle_executed(&mut self, number: u64, took: Duration) {
        let Some(task) = self.running.remove(&number) else {
            return;
        };
        let process = task.executor.process;
        self.last_task.insert(process, took);
        let path = task.executor.path.union(&task.provider.path).copied().collect();
        self.enqueue(process, path, false);
        self.schedule();
    }

    /// Fault position 1: the task could not be sent, as its executor has failed.
    pub fn handle_unsent(&mut self, number: u64) {
        if let Some(task) = self.running.remove(&number) {
            self.failed.insert(task.executor.process);
            self.recover(task.provider, task.executor.path);
        }
    }

    /// Fault position 3: the executor lives and could not pull from the provider, which has failed.
    pub fn handle_pull_failed(&mut self, number: u64) {
        if let Some(task) = self.running.remove(&number) {
            self.failed.insert(task.provider.process);
            self.recover(task.executor, task.provider.path);
        }
    }

    /// The detector has found a process failed. If it was executing, that is fault position 2.
    pub fn handle_failed(&mut self, process: Member) {
        self.failed.insert(process);
        if process == self.root {
            return self.end(false);
        }
        let executing = self
            .running
            .values()
            .find(|task| task.executor.process == process);
        let number = executing.map(|task| task.number);
        if let Some(task) = number.and_then(|number| self.running.remove(&number)) {
            self.recover(task.provider, task.executor.path);
        }
        self.schedule();
    }

    /// Steps 1 to 3 of the recovery: `message` goes back, and the path of the lost data is split into flagged messages.
    fn recover(&mut self, message: ReduceMessage, path: BTreeSet<Member>) {
        self.queue.push_back(message);
        for process in path {
            self.enqueue(process, BTreeSet::from([process]), true);
        }
        self.schedule();
    }

    /// Step 2: all messages go to Q.
    fn enqueue(&mut self, process: Member, path: BTreeSet<Member>, is_flagged: bool) {
        self.queue.push_back(ReduceMessage {
            process,
            path,
            is_flagged,
        });
    }

    /// Steps 3 and 4.
    fn schedule(&mut self) {
        let mut postponed = 0;
        while !self.has_ended {
            let Some(first) = self.queue.front() else { return };
            if first.path.len() == self.processes as usize {
                return self.end(true);
            }
            if self.queue.len() < 2 || postponed >= self.queue.len() {
                return;
            }
            let (Some(first), Some(second)) = (self.queue.pop_front(), self.queue.pop_front()) else {
                return;
            };
            let Some(is_first) = self.first_executes(&first, &second) else {
                // Of two failed processes one waits for the next message; both do if all of them have failed.
                self.queue.push_front(first);
                self.queue.push_back(second);
                postponed += 1;
                continue;
            };
            postponed = 0;
            let (executor, provider) = if is_first {
                (first, second)
            } else {
                (second, first)
            };
            self.tasks += 1;
            let task = Task {
                number: self.tasks,
                executor,
                provider,
            };
            self.running.insert(task.number, task.clone());
            self.actions.push_back(TaskAction::Assign(task));
        }
    }

    /// Step 4, and step 4 of the recovery; `None` if neither lives.
    fn first_executes(&self, first: &ReduceMessage, second: &ReduceMessage) -> Option<bool> {
        let lives = |message: &ReduceMessage| !self.failed.contains(&message.process);
        let time =
            |message: &ReduceMessage| self.last_task.get(&message.process).copied().unwrap_or_default();
        match (lives(first), lives(second)) {
            (false, false) => None,
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ if first.process == self.root => Some(true),
            _ if second.process == self.root => Some(false),
            _ if first.is_flagged != second.is_flagged => Some(first.is_flagged),
            _ => Some(time(first) < time(second)),
        }
    }

    /// Step 6.
    fn end(&mut self, is_complete: bool) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.actions.push_back(TaskAction::End { is_complete });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(members: &[u32]) -> BTreeSet<Member> {
        members.iter().copied().map(Member).collect()
    }

    fn message(process: u32, members: &[u32], is_flagged: bool) -> ReduceMessage {
        ReduceMessage {
            process: Member(process),
            path: path(members),
            is_flagged,
        }
    }

    fn tasks(scheduler: &mut TaskScheduler) -> Vec<Task> {
        std::iter::from_fn(|| scheduler.poll_action())
            .filter_map(|action| match action {
                TaskAction::Assign(task) => Some(task),
                TaskAction::End { .. } => None,
            })
            .collect()
    }

    fn called(processes: u32, root: u32, order: &[u32]) -> TaskScheduler {
        let mut scheduler = TaskScheduler::new(processes, Member(root));
        for &process in order {
            scheduler.handle_called(Member(process));
        }
        scheduler
    }

    const TIME: Duration = Duration::from_millis(10);

    /// Figure 4: "four processes, the root is 1, the messages arrive in the order 0, 3, 1, 2. Task 1 of 0 and 3
    /// goes to 3, task 2 of 1 and 2 goes to 1, since it is the root; both run in parallel. Task 3 of 1 and 3 goes
    /// to 1."
    #[test]
    fn the_worked_example() {
        let mut scheduler = called(4, 1, &[0, 3, 1, 2]);
        let given = tasks(&mut scheduler);
        assert_eq!(given[0].executor, message(3, &[3], false));
        assert_eq!(given[0].provider, message(0, &[0], false));
        assert_eq!(given[1].executor, message(1, &[1], false));
        assert_eq!(given[1].provider, message(2, &[2], false));
        scheduler.handle_executed(given[1].number, TIME);
        scheduler.handle_executed(given[0].number, TIME);
        let given = tasks(&mut scheduler);
        assert_eq!(given[0].executor, message(1, &[1, 2], false));
        assert_eq!(given[0].provider, message(3, &[0, 3], false));
        scheduler.handle_executed(given[0].number, TIME);
        assert_eq!(
            scheduler.poll_action(),
            Some(TaskAction::End { is_complete: true })
        );
    }

    /// Step 3: "if the path of the first message is of length p, broadcast that the reduction is over."
    #[test]
    fn step_3_of_one_process() {
        let mut scheduler = called(1, 0, &[0]);
        assert_eq!(
            scheduler.poll_action(),
            Some(TaskAction::End { is_complete: true })
        );
    }

    /// Step 4: "otherwise, by the time of each process's last task, to the one that took less."
    #[test]
    fn step_4_prefers_the_faster() {
        let mut scheduler = called(6, 5, &[0, 1, 2, 3]);
        let given = tasks(&mut scheduler);
        assert_eq!(
            (given[0].executor.process, given[1].executor.process),
            (Member(1), Member(3))
        );
        scheduler.handle_executed(given[0].number, TIME);
        scheduler.handle_executed(given[1].number, 2 * TIME);
        let given = tasks(&mut scheduler);
        assert_eq!(given[0].executor, message(1, &[0, 1], false));
    }

    /// Fault position 1, "S sends a task to W_i and finds that W_i has failed: M = M_j, P = P_i. M goes back to Q.
    /// P is split into m messages with the fault-tolerance flag."
    #[test]
    fn fault_position_1() {
        let mut scheduler = called(4, 3, &[0, 1]);
        let given = tasks(&mut scheduler);
        assert_eq!(given[0].executor.process, Member(1));
        scheduler.handle_unsent(given[0].number);
        // Of process 0 and the failed process 1, "the task goes to the one that has not failed".
        let given = tasks(&mut scheduler);
        assert_eq!(given[0].executor, message(0, &[0], false));
        assert_eq!(given[0].provider, message(1, &[1], true));
    }

    /// Fault position 2, "W_i fails while it executes: M = M_j, P = P_i."
    #[test]
    fn fault_position_2() {
        let mut scheduler = called(5, 4, &[0, 1, 2]);
        let given = tasks(&mut scheduler);
        scheduler.handle_executed(given[0].number, TIME);
        // Process 1 holds {0, 1} and is faster than nothing is; process 2 executes.
        let given = tasks(&mut scheduler);
        assert_eq!(given[0].executor, message(2, &[2], false));
        assert_eq!(given[0].provider, message(1, &[0, 1], false));
        scheduler.handle_failed(Member(2));
        // M_1 goes back, and {2} is flagged: of those two, process 1 lives.
        let given = tasks(&mut scheduler);
        assert_eq!(given[0].executor, message(1, &[0, 1], false));
        assert_eq!(given[0].provider, message(2, &[2], true));
    }

    /// Fault position 3, "W_j fails while W_i pulls from it: M = M_i, P = P_j."
    #[test]
    fn fault_position_3() {
        let mut scheduler = called(5, 4, &[0, 1, 2]);
        let given = tasks(&mut scheduler);
        scheduler.handle_executed(given[0].number, TIME);
        let given = tasks(&mut scheduler);
        scheduler.handle_failed(Member(1));
        assert_eq!(tasks(&mut scheduler), []);
        scheduler.handle_pull_failed(given[0].number);
        // Q: M_2, {0} flagged, {1} flagged. Of 2 and 0, "the one with the flag executes".
        let given = tasks(&mut scheduler);
        assert_eq!(given[0].executor, message(0, &[0], true));
        assert_eq!(given[0].provider, message(2, &[2], false));
        scheduler.handle_executed(given[0].number, TIME);
        // Of the failed process 1 and process 0, process 0 executes.
        let given = tasks(&mut scheduler);
        assert_eq!(given[0].executor, message(0, &[0, 2], false));
        assert_eq!(given[0].provider, message(1, &[1], true));
    }

    /// Table 1 at p = 200: the master receives 399 messages and sends 199, and the broadcast of the end apart.
    #[test]
    fn messages_at_200_processes() {
        let mut scheduler = TaskScheduler::new(200, Member(0));
        let (mut received, mut sent) = (0, 0);
        let mut running = VecDeque::new();
        for process in 0..200 {
            received += 1;
            scheduler.handle_called(Member(process));
        }
        loop {
            match scheduler.poll_action() {
                Some(TaskAction::Assign(task)) => {
                    sent += 1;
                    running.push_back(task.number);
                }
                Some(TaskAction::End { is_complete }) => {
                    assert!(is_complete);
                    break;
                }
                None => {
                    received += 1;
                    scheduler.handle_executed(running.pop_front().unwrap(), TIME);
                }
            }
        }
        assert_eq!((received, sent), (399, 199));
    }

    proptest! {
        /// Whatever fails and when, a reduction whose root lives ends, and with each contribution once: the paths
        /// of the two messages of a task are disjoint.
        #[test]
        fn contributions_count_once(
            processes in 1_u32..12,
            root in 0_u32..12,
            choices in prop::collection::vec((0_usize..100, 0_u32..14), 0..200),
        ) {
            let root = Member(root % processes);
            let mut scheduler = TaskScheduler::new(processes, root);
            let mut failed = BTreeSet::new();
            let mut running: Vec<Task> = Vec::new();
            for process in 0..processes {
                scheduler.handle_called(Member(process));
            }
            let mut choices = choices.into_iter();
            loop {
                let mut ended = false;
                while let Some(action) = scheduler.poll_action() {
                    match action {
                        TaskAction::Assign(task) => {
                            prop_assert!(task.executor.path.is_disjoint(&task.provider.path));
                            running.push(task);
                        }
                        TaskAction::End { is_complete } => {
                            prop_assert!(is_complete);
                            ended = true;
                        }
                    }
                }
                if ended {
                    break;
                }
                prop_assert!(!running.is_empty(), "nothing runs, and there is no end");
                let (at, fails) = choices.next().unwrap_or((0, u32::MAX));
                let victim = Member(fails);
                if fails < processes && victim != root && failed.insert(victim) {
                    running.retain(|task| task.executor.process != victim);
                    scheduler.handle_failed(victim);
                    continue;
                }
                let task = running.swap_remove(at % running.len());
                if failed.contains(&task.executor.process) {
                    scheduler.handle_unsent(task.number);
                } else if failed.contains(&task.provider.process) && !task.provider.is_flagged {
                    scheduler.handle_pull_failed(task.number);
                } else {
                    scheduler.handle_executed(task.number, TIME);
                }
            }
        }
    }
}

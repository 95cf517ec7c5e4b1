//! The paper's reduction to the letter: the measured baseline, and the form in which a reader recognises the paper.
//!
//! "Distributed fault-tolerant reduction based on task parallelism" (the papers 000 and 003 of this project): the
//! master keeps a queue of reduce messages (W_i, P_i) and makes a task of the next two; one of the two processes
//! pulls the other's whole vector, folds, and sends a message with the union of the paths. [`TaskScheduler`] is
//! steps 1 to 6 of its section 2 and the five steps of its section 3; [`Replicas`] is the double copy of formula
//! (4).
//!
//! Where the text is silent or contradicts itself:
//! - On a tie of the last task times the second process executes, as in the worked example of figure 4.
//! - The root executes whatever it takes part in, before the rule of the fault-tolerance flag: otherwise the result
//!   would not be at the root.
//! - Two processes that have both failed: neither can execute. Their messages wait at the end of the queue for a
//!   message of a living process. There always is one: the root's.
//! - The root's failure ends the reduction with an error: the paper has no other root.
//! - In fault position 3 the executing process tells that its pull failed, as the master cannot know how far it was.

mod replicas;
mod task_scheduler;

pub use self::{
    replicas::{Copy, Replicas},
    task_scheduler::{ReduceMessage, Task, TaskAction, TaskScheduler},
};

//! The programs of a simulated job.

use std::collections::VecDeque;

use ropewalk_launch_core::group_plan::GroupPlan;

use crate::Dice;

/// The programs of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Programs {
    /// They put a value of so many bytes under a key of their own and meet, so many times, as MPICH's programs do.
    Fences {
        /// How many times.
        fences: u32,
        /// The bytes of a value.
        value: usize,
    },
    /// They do nothing, for ever.
    Idle,
    /// They put a value and get those of all others, twice.
    Talkative {
        /// Some spawn others first, whose programs do so too. Some of these programs do not exist.
        spawn: bool,
    },
    /// They talk, and write up to 9 MiB besides.
    Writing,
}

/// Something that a process does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Sends this by PMI and waits for the answer.
    Say(Vec<u8>),
    /// Writes so many bytes.
    Write(usize),
}

/// A program that cannot be started.
pub(super) const MISSING: &str = "missing";

impl Programs {
    /// The steps of a process, by its place in its group.
    pub(super) fn script(
        self,
        dice: &mut Dice,
        group: &GroupPlan,
        kvsname: &str,
        place: u32,
    ) -> VecDeque<Step> {
        let say = |line: String| Step::Say(line.into_bytes());
        let begin = say("cmd=init pmi_version=1 pmi_subversion=1\n".to_owned());
        let put = |key: String, value: &str| {
            [
                say(format!("cmd=put kvsname={kvsname} key={key} value={value}\n")),
                say("cmd=barrier_in\n".to_owned()),
            ]
        };
        let mut script = VecDeque::from([begin]);
        match self {
            Self::Idle => return VecDeque::new(),
            Self::Fences { fences, value } => {
                let value = "v".repeat(value);
                for fence in 0..fences {
                    script.extend(put(format!("{place}.{fence}"), &value));
                }
            }
            Self::Talkative { .. } | Self::Writing => {
                if self == (Self::Talkative { spawn: true }) && group.id < 4 && dice.once_in(3) {
                    script.push_back(say(spawn(dice)));
                }
                for round in 0..2 {
                    script.extend(put(format!("{place}.{round}"), &place.to_string()));
                    for other in 0..group.size {
                        script.push_back(say(format!("cmd=get kvsname={kvsname} key={other}.{round}\n")));
                    }
                }
            }
        }
        script.push_back(say("cmd=finalize\n".to_owned()));
        if self == Self::Writing {
            for _ in 0..dice.below(4) {
                let at = dice.below(script.len() as u64 + 1) as usize;
                script.insert(at, Step::Write(1 + dice.below(3 << 20) as usize));
            }
        }
        script
    }
}

/// Two programs in one request, the first of which may be missing.
fn spawn(dice: &mut Dice) -> String {
    let program = if dice.once_in(3) { MISSING } else { "other" };
    let count = dice.within(1..5);
    let part = |number, count, program| {
        format!(
            "mcmd=spawn\nnprocs={count}\nexecname={program}\ntotspawns=2\nspawnssofar={number}\nargcnt=0\n\
             preput_num=0\ninfo_num=0\nendcmd\n"
        )
    };
    part(1, count, program) + &part(2, 1, "other")
}

/// The process whose key a line asks for, by its place in its group.
pub(super) fn wanted(line: &[u8]) -> Option<u32> {
    let line = std::str::from_utf8(line).ok()?;
    let key = line.strip_prefix("cmd=get ")?.split_once("key=")?.1;
    key.split_once('.')?.0.parse().ok()
}

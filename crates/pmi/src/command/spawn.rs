//! Starting more processes: the parts of the table that are lists of lists.

use std::collections::BTreeMap;

use bstr::BString;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Request,
    attribute::{Attribute, PairKeys, Pairs},
};
use crate::{
    Form,
    wire::{Attributes, MessageWriter},
};

/// A process wants more processes: a new process group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// The pairs that the new group's key-value space holds from the beginning.
    pub preput: Vec<(BString, BString)>,
    /// The programs to start, in the order of the new ranks.
    pub commands: Vec<SpawnCommand>,
}

/// One program of a [`Spawn`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnCommand {
    /// The program.
    pub program: BString,
    /// How many processes of it.
    pub processes: u32,
    /// Its arguments, without its name.
    pub arguments: Vec<BString>,
    /// Wishes: `wdir`, `host`, `hosts`, `hostfile`, `path`; what is not known is to be ignored.
    pub info: Vec<(BString, BString)>,
}

impl Spawn {
    /// How many processes this wants.
    pub fn processes(&self) -> u64 {
        self.commands
            .iter()
            .map(|command| u64::from(command.processes))
            .sum()
    }
}

/// The arguments of a program in a block: `arg1=`, `arg2=` .. and `argcnt=`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments(pub Vec<BString>);

impl Attribute for Arguments {
    fn read(attributes: &Attributes<'_>, _keys: &[&str]) -> Option<Self> {
        let count = Option::<u32>::read(attributes, &["argcnt"])?.unwrap_or(0);
        let arguments: BTreeMap<u32, BString> = attributes
            .numbered("arg")
            .filter(|(index, _)| (1..=count).contains(index))
            .map(|(index, argument)| (index, argument.into_owned().into()))
            .collect();
        (arguments.len() == count as usize).then(|| Self(arguments.into_values().collect()))
    }

    fn write(&self, key: &str, writer: &mut MessageWriter<'_>) {
        for (index, argument) in (1..).zip(&self.0) {
            writer.pair(&format!("{key}{index}"), argument);
        }
        writer.pair("argcnt", self.0.len().to_string().as_bytes());
    }
}

/// The programs of a spawn in a frame, whose attributes repeat for each and so depend on their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpawnCommands(pub Vec<SpawnCommand>);

impl Attribute for SpawnCommands {
    fn read(attributes: &Attributes<'_>, keys: &[&str]) -> Option<Self> {
        let words = PairKeys::new("info", Form::Frame);
        let mut commands: Vec<SpawnCommand> = Vec::new();
        let mut info_key = None;
        for (key, value) in attributes.since(keys[0]) {
            if key == keys[0].as_bytes() {
                commands.push(SpawnCommand {
                    program: value.into_owned().into(),
                    processes: 1,
                    arguments: Vec::new(),
                    info: Vec::new(),
                });
                continue;
            }
            let command = commands.last_mut()?;
            if key == b"maxprocs" {
                command.processes = std::str::from_utf8(&value).ok()?.trim().parse().ok()?;
            } else if is_numbered(key, "argv") {
                command.arguments.push(value.into_owned().into());
            } else if is_numbered(key, words.key) {
                info_key = Some(BString::from(value.into_owned()));
            } else if is_numbered(key, words.value) {
                let key = info_key.take()?;
                command.info.push((key, value.into_owned().into()));
            }
        }
        (!commands.is_empty()).then_some(Self(commands))
    }

    fn write(&self, key: &str, writer: &mut MessageWriter<'_>) {
        for command in &self.0 {
            writer.pair(key, &command.program);
            writer.pair("maxprocs", command.processes.to_string().as_bytes());
            writer.pair("argc", command.arguments.len().to_string().as_bytes());
            for (index, argument) in command.arguments.iter().enumerate() {
                writer.pair(&format!("argv{index}"), argument);
            }
            Pairs(command.info.clone()).write("info", writer);
        }
    }
}

fn is_numbered(key: &[u8], prefix: &str) -> bool {
    key.strip_prefix(prefix.as_bytes())
        .is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// Collects the blocks of PMI-1 into one [`Spawn`].
#[derive(Clone, Debug, Default)]
pub struct SpawnBlocks {
    spawn: Option<Spawn>,
    size: usize,
}

impl SpawnBlocks {
    /// How many programs one spawn may have.
    pub const COMMANDS_MAX: u32 = 1024;
    /// The most bytes of a spawn's programs, arguments and pairs together.
    pub const SIZE_MAX: usize = 4 << 20;

    /// Takes a [`Request::SpawnBlock`]; the last of a spawn gives the whole.
    ///
    /// # Errors
    /// If the blocks do not follow each other as they say, or are too many. What was collected is dropped.
    pub fn push(&mut self, block: Request) -> Result<Option<Spawn>, SpawnError> {
        let Request::SpawnBlock {
            processes,
            program,
            total,
            so_far,
            arguments,
            preput,
            info,
        } = block
        else {
            return Err(SpawnError::NoBlock);
        };
        let mut spawn = self.spawn.take().unwrap_or_else(|| {
            self.size = 0;
            Spawn {
                preput: Vec::new(),
                commands: Vec::new(),
            }
        });
        let place = spawn.commands.len() as u32 + 1;
        if so_far != place || !(place..=Self::COMMANDS_MAX).contains(&total) {
            return Err(SpawnError::Order { so_far, total, place });
        }
        // Each block may repeat the pairs of the first.
        if place == 1 {
            self.size += size_of_pairs(&preput.0);
            spawn.preput = preput.0;
        }
        self.size += program.len() + size_of_pairs(&info.0);
        self.size += arguments.0.iter().map(|argument| argument.len()).sum::<usize>();
        if self.size > Self::SIZE_MAX {
            return Err(SpawnError::TooLarge);
        }
        spawn.commands.push(SpawnCommand {
            program,
            processes,
            arguments: arguments.0,
            info: info.0,
        });
        if so_far == total {
            return Ok(Some(spawn));
        }
        self.spawn = Some(spawn);
        Ok(None)
    }

    /// The blocks that say `spawn`, one after the other.
    pub fn of(spawn: &Spawn) -> impl Iterator<Item = Request> + '_ {
        let total = spawn.commands.len() as u32;
        (1..)
            .zip(&spawn.commands)
            .map(move |(so_far, command)| Request::SpawnBlock {
                processes: command.processes,
                program: command.program.clone(),
                total,
                so_far,
                arguments: Arguments(command.arguments.clone()),
                preput: Pairs(spawn.preput.clone()),
                info: Pairs(command.info.clone()),
            })
    }
}

fn size_of_pairs(pairs: &[(BString, BString)]) -> usize {
    pairs.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// Blocks of a spawn that make no whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// Another request.
    #[error("a spawn consists of blocks, and this is none")]
    NoBlock,
    /// The numbers do not fit together.
    #[error(
        "a spawn block says it is number {so_far} of {total}, but it is number {place}, and there may be at \
         most {} of them",
        SpawnBlocks::COMMANDS_MAX
    )]
    Order {
        /// Which it says it is.
        so_far: u32,
        /// How many it says there are.
        total: u32,
        /// Which it is.
        place: u32,
    },
    /// More bytes than [`SpawnBlocks::SIZE_MAX`].
    #[error("a spawn takes more than {} bytes", SpawnBlocks::SIZE_MAX)]
    TooLarge,
}

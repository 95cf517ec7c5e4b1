//! The call of a reduction, as all members have to make it.

use std::{fmt, num::NonZeroU32};

use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;
pub(crate) use ropewalk_reduce_core::Contributions;
use ropewalk_reduce_core::{Call, Member, OnRootLoss};
pub use ropewalk_reduce_core::{OnLoss, Order};
use serde::{Deserialize, Serialize};

/// The call of one member; a reduction goes on only if all members call alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Signature {
    /// The name of the operation.
    pub operation: String,
    /// The name of the element's or object's type.
    pub element: String,
    /// The size of an element in bytes; `None` for an opaque object, which cannot be cut.
    pub element_size: Option<NonZeroU32>,
    /// The length of an encoded contribution in bytes; `None` for an opaque object, whose length may differ.
    pub length: Option<u64>,
    /// The contributions.
    pub contributions: Contributions,
    /// The rank that gets the result.
    pub root: Rank,
    /// All members get it, from the root.
    pub is_spread: bool,
    /// The order of combination.
    pub order: Order,
    /// The answer to the loss of contributions.
    pub on_loss: OnLoss,
    /// The answer to the loss of the root.
    pub on_root_loss: RootFailure,
}

/// The answer to the loss of the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootFailure {
    /// The reduction ends with an error on all members.
    #[default]
    Fail,
    /// This member gets the result, unless it is lost too.
    MoveTo(Rank),
    /// The first rank of the group that lives gets the result: the lowest one, if the group is in the order of ranks.
    MoveToLowest,
}

impl Signature {
    /// The longest name of an operation or a type, in bytes; longer ones are cut.
    pub(crate) const NAME_LENGTH_MAX: usize = 200;

    /// The first byte of the result that a contribution is for.
    pub(crate) fn begin_of(&self, member: Member) -> u64 {
        match self.contributions {
            Contributions::SideBySide => u64::from(member.0) * self.length.unwrap_or_default(),
            _ => 0,
        }
    }

    /// The call as the core compares it. `None` if a rank that it names is not in the group.
    pub(crate) fn call(&self, members: &ProcessGroup) -> Option<Call> {
        let member = |rank| members.index_of(rank).map(|index| Member(index as u32));
        let on_root_loss = match self.on_root_loss {
            RootFailure::Fail => OnRootLoss::Fail,
            RootFailure::MoveTo(rank) => OnRootLoss::MoveTo(member(rank)?),
            RootFailure::MoveToLowest => OnRootLoss::MoveToLowest,
        };
        let mut hasher = blake3::Hasher::new();
        for name in [&self.operation, &self.element] {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
        }
        hasher.update(&[u8::from(self.length.is_some())]);
        let mut digest = [0; 8];
        hasher.finalize_xof().fill(&mut digest);
        Some(Call {
            bytes: self.length.unwrap_or_default(),
            element_bytes: self.element_size.map_or(1, NonZeroU32::get),
            contributions: self.contributions,
            root: member(self.root)?,
            is_spread: self.is_spread,
            order: self.order,
            operation: u64::from_le_bytes(digest),
            on_loss: self.on_loss,
            on_root_loss,
            gives_way_to: None,
        })
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of ", self.operation)?;
        if let Contributions::Shared(sources) = self.contributions {
            write!(f, "{sources} sources of ")?;
        }
        match (self.length, self.element_size) {
            (Some(length), Some(size)) => write!(f, "{} x {}", length / u64::from(size.get()), self.element)?,
            _ => write!(f, "{}", self.element)?,
        }
        if let Contributions::One(_) = self.contributions {
            write!(f, " from rank {}", self.root)?;
        }
        match self.is_spread {
            true => f.write_str(" to all")?,
            false => write!(f, " to root {}", self.root)?,
        }
        if let Contributions::Each | Contributions::Shared(_) = self.contributions {
            write!(f, ", {:?} order", self.order)?;
        }
        if self.on_loss == OnLoss::Exclude {
            f.write_str(", without members that are lost")?;
        }
        match self.on_root_loss {
            RootFailure::Fail => Ok(()),
            _ if self.is_spread => Ok(()),
            RootFailure::MoveTo(rank) => write!(f, ", or else to rank {rank}"),
            RootFailure::MoveToLowest => f.write_str(", or else to the lowest rank"),
        }
    }
}

/// The beginning of a text, at most `length_max` bytes of it.
pub(crate) fn cut(mut text: String, length_max: usize) -> String {
    if text.len() > length_max {
        let end = (0..=length_max).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
    text
}

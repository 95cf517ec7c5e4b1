//! To which processors ranks are bound, and in which order they are numbered, out of what several options say.

use core::num::NonZeroU32;

use anyhow::bail;
use ropewalk_launch::{Binding, DealOrder, Mapping, Part, Parts, Placement};

use super::given::Given;

/// The values of `-bind-to`, `-map-by` and `--rank-by`.
#[derive(Default)]
pub(super) struct BindTo {
    pub(super) binding: Option<Binding>,
    order: Option<DealOrder>,
    mapping: Option<Mapped>,
    is_mapping_variable: bool,
    numbering: Option<Numbering>,
    cores_per_rank: Option<NonZeroU32>,
}

/// How the ranks of a host get its parts.
#[derive(Clone, Copy)]
enum Mapped {
    /// So many on each part, one part after the other.
    Filling(NonZeroU32, Part),
    /// Each behind the one before it.
    Turns(Parts),
}

/// The value of `--rank-by`.
#[derive(Clone, Copy)]
enum Numbering {
    Hosts(DealOrder),
    Parts(Part),
}

impl BindTo {
    /// The value of `-bind-to`. That ranks may share parts, as Open MPI's word behind it says, holds anyway.
    pub(super) fn bind_to(&mut self, given: &mut Given<'_>) -> anyhow::Result<()> {
        let text = given.text()?;
        let parts = text.strip_suffix(":overload-allowed").unwrap_or(&text);
        given.words.push_front(parts.into());
        self.binding = Some(given.parsed("none, rr, user:LIST or PART[:N], as in core:2")?);
        Ok(())
    }

    /// The value of `-map-by` has two meanings: the order in which hosts get ranks, and, as in Hydra, the order in
    /// which parts of a host do.
    pub(super) fn map_by(&mut self, given: &mut Given<'_>) -> anyhow::Result<()> {
        match given.words.front().and_then(|word| word.to_str()) {
            Some("slot") => self.order = Some(DealOrder::BySlot),
            Some("node" | "host") => self.order = Some(DealOrder::ByNode),
            _ => {
                let parts = given.parsed("slot, node or PART[:N], as in socket")?;
                self.mapping = Some(Mapped::Turns(parts));
                return Ok(());
            }
        }
        given.next().map(drop)
    }

    /// Each rank is bound to so many cores side by side, unless `-bind-to` says other parts or none.
    pub(super) fn cores_per_rank(&mut self, cores: NonZeroU32) {
        self.cores_per_rank = Some(cores);
    }

    /// So many ranks run on each part of this kind.
    pub(super) fn fill(&mut self, ranks: NonZeroU32, part: Part) {
        self.mapping = Some(Mapped::Filling(ranks, part));
    }

    /// The value of `HYDRA_MAPPING`, if no option has either meaning.
    pub(super) fn map_by_variable(&mut self, given: &mut Given<'_>) -> anyhow::Result<()> {
        if self.order.is_none() && self.mapping.is_none() {
            self.is_mapping_variable = true;
            self.map_by(given)?;
        }
        Ok(())
    }

    /// The value of `--rank-by`.
    pub(super) fn rank_by(&mut self, given: &mut Given<'_>) -> anyhow::Result<()> {
        self.numbering = Some(match given.words.front().and_then(|word| word.to_str()) {
            Some("slot") => Numbering::Hosts(DealOrder::BySlot),
            Some("node" | "host") => Numbering::Hosts(DealOrder::ByNode),
            _ => {
                let parts: Parts = given.parsed("slot, node or a part of hosts, as in socket")?;
                self.numbering = Some(Numbering::Parts(parts.part));
                return Ok(());
            }
        });
        given.next().map(drop)
    }

    /// Says how ranks are placed; `notices` are told of what is passed over.
    pub(super) fn finish(self, placement: &mut Placement, notices: &mut Vec<String>) -> anyhow::Result<()> {
        if self.numbering.is_some() && placement.rank_map.is_some() {
            bail!("option --rank-by does not go with -rankmap, which says where each rank runs");
        }
        placement.order = self.order.unwrap_or_default();
        let filled = match self.mapping {
            Some(Mapped::Filling(_, part)) => Some(Binding::to_parts(part)),
            _ => None,
        };
        let widened = match (self.cores_per_rank, self.binding) {
            (Some(count), None) => {
                let part = Part::Core;
                Some(Binding::to_parts(Parts { part, count }))
            }
            (Some(count), Some(Binding::Parts { parts, .. })) if is_processor(parts) => {
                let part = parts.part;
                Some(Binding::to_parts(Parts { part, count }))
            }
            (Some(_), Some(binding)) if binding != Binding::Nowhere => {
                bail!("PE=N in option -map-by goes with -bind-to core, hwthread and none only")
            }
            (_, binding) => binding,
        };
        placement.binding = widened.or(filled).unwrap_or_default();
        if let Binding::Parts { mapping, .. } = &mut placement.binding {
            match self.mapping {
                Some(Mapped::Filling(ranks, part)) => {
                    let domain = part.into();
                    *mapping = Mapping { domain, ranks };
                }
                Some(Mapped::Turns(parts)) => *mapping = parts.into(),
                None => {}
            }
        } else if let Some(Mapped::Turns(parts)) = self.mapping {
            // Without binding the parts have no order: Hydra passes it over too.
            let source = match self.is_mapping_variable {
                true => "the variable HYDRA_MAPPING".to_owned(),
                false => format!("-map-by {parts}"),
            };
            notices.push(format!(
                "{source} says in which order parts of a host are bound to, and ranks are not bound to parts; it is \
                 passed over"
            ));
        }
        match self.numbering {
            Some(Numbering::Hosts(order)) => placement.numbering = Some(order),
            Some(Numbering::Parts(part)) => number_by(part, &mut placement.binding, self.mapping)?,
            None => {}
        }
        if let (Some(DealOrder::BySlot), Some(Mapped::Turns(turns)), Binding::Parts { parts, .. }) =
            (placement.numbering, self.mapping, &placement.binding)
            && turns.part != parts.part
        {
            let part = turns.part;
            bail!(
                "option --rank-by slot does not go with -map-by {part}, which deals ranks to such parts in turn: \
                 --map-by ppr:N:{part} puts N ranks on one after the other"
            );
        }
        Ok(())
    }
}

/// Says if these are a single core or hardware thread.
fn is_processor(parts: Parts) -> bool {
    matches!(parts.part, Part::Core | Part::HardwareThread) && parts.count == NonZeroU32::MIN
}

/// The value of `-map-by` without Open MPI's modifiers, and these. The first follows a colon, each other one a colon or
/// a comma.
pub(super) fn divide_modifiers(text: &str) -> (&str, impl Iterator<Item = &str>) {
    let is_order = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let mut end = text.find(':').unwrap_or(text.len());
    if text.starts_with("ppr:") {
        let mut colons = text.match_indices(':').map(|(at, _)| at);
        end = colons.nth(2).unwrap_or(text.len());
    }
    // The number of parts belongs to the order: socket:2.
    if let Some(number) = text.get(end + 1..) {
        let number = number.split(':').next().unwrap_or_default();
        if is_order(number) {
            end += 1 + number.len();
        }
    }
    let (order, modifiers) = text.split_at(end);
    let words = modifiers.split([':', ',']).filter(|word| !word.is_empty());
    (order, words)
}

/// Numbers the ranks of a host by its parts in turn.
fn number_by(part: Part, binding: &mut Binding, mapped: Option<Mapped>) -> anyhow::Result<()> {
    let mapped_to = match (mapped, &*binding) {
        (Some(Mapped::Filling(_, part)), _) => Some(part),
        (Some(Mapped::Turns(parts)), _) => Some(parts.part),
        (None, Binding::Parts { parts, .. }) => Some(parts.part),
        (None, _) => None,
    };
    if mapped_to != Some(part) {
        bail!(
            "option --rank-by {part} numbers ranks by the parts of -map-by {part} or --map-by ppr:N:{part}"
        );
    }
    if let Binding::Parts { mapping, .. } = binding {
        mapping.ranks = NonZeroU32::MIN;
    }
    Ok(())
}

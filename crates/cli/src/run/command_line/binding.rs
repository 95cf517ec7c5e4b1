//! To which processors ranks are bound, out of what several options say.

use ropewalk_launch::{Binding, DealOrder, Parts, Placement};

use super::given::Given;

/// The values of `-bind-to` and `-map-by`.
#[derive(Default)]
pub(super) struct BindTo {
    pub(super) binding: Option<Binding>,
    order: Option<DealOrder>,
    mapping: Option<Parts>,
    is_mapping_variable: bool,
}

impl BindTo {
    /// The value of `-bind-to`.
    pub(super) fn bind_to(&mut self, given: &mut Given<'_>) -> anyhow::Result<()> {
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
                self.mapping = Some(given.parsed("slot, node or PART[:N], as in socket")?);
                return Ok(());
            }
        }
        given.next().map(drop)
    }

    /// The value of `HYDRA_MAPPING`, if no option has either meaning.
    pub(super) fn map_by_variable(&mut self, given: &mut Given<'_>) -> anyhow::Result<()> {
        if self.order.is_none() && self.mapping.is_none() {
            self.is_mapping_variable = true;
            self.map_by(given)?;
        }
        Ok(())
    }

    /// Says how ranks are placed; `notices` are told of what is passed over.
    pub(super) fn finish(self, placement: &mut Placement, notices: &mut Vec<String>) {
        placement.order = self.order.unwrap_or_default();
        placement.binding = self.binding.unwrap_or_default();
        let Some(mapping) = self.mapping else {
            return;
        };
        if let Binding::Parts { mapping: order, .. } = &mut placement.binding {
            *order = mapping;
            return;
        }
        // Without binding the parts have no order: Hydra passes it over too.
        let source = match self.is_mapping_variable {
            true => "the variable HYDRA_MAPPING".to_owned(),
            false => format!("-map-by {mapping}"),
        };
        notices.push(format!(
            "{source} says in which order parts of a host are bound to, and ranks are not bound to parts; it is passed \
             over"
        ));
    }
}

//! To which processors ranks are bound, out of what several options say.

use anyhow::{Context, bail};
use ropewalk::launch::{Binding, DealOrder, Part, Parts, Placement};

/// What `-bind-to` and `-map-by` say.
#[derive(Default)]
pub(super) struct BindTo {
    binding: Binding,
    mapping: Option<Mapping>,
    /// All of `-map-by` so far is what a variable says.
    is_mapping_variable: bool,
}

struct Mapping {
    parts: Parts,
    is_variable: bool,
}

impl BindTo {
    /// Takes what Hydra's variables say where no option says otherwise.
    pub(super) fn take_variables(
        &mut self,
        variable: impl Fn(&str) -> Option<String>,
        placement: &mut Placement,
    ) -> anyhow::Result<()> {
        if let Some(text) = variable("HYDRA_BINDING") {
            self.bind_to(&text).context("the variable HYDRA_BINDING")?;
        }
        if let Some(text) = variable("HYDRA_MAPPING") {
            self.map_by(&text, placement)
                .context("the variable HYDRA_MAPPING")?;
            self.is_mapping_variable = true;
            if let Some(mapping) = &mut self.mapping {
                mapping.is_variable = true;
            }
        }
        Ok(())
    }

    /// The value of `-bind-to`.
    pub(super) fn bind_to(&mut self, text: &str) -> anyhow::Result<()> {
        self.binding = text
            .parse()
            .context("option -bind-to wants none, rr, user:LIST or PART[:N], as in core:2")?;
        Ok(())
    }

    /// The value of `-map-by`, which has two meanings: in which order hosts get ranks, and, as in Hydra, in which order
    /// parts of a host do.
    pub(super) fn map_by(&mut self, text: &str, placement: &mut Placement) -> anyhow::Result<()> {
        if std::mem::take(&mut self.is_mapping_variable) {
            self.mapping = None;
            placement.order = DealOrder::default();
        }
        match text {
            "slot" => placement.order = DealOrder::BySlot,
            "node" | "host" => placement.order = DealOrder::ByNode,
            _ => {
                let parts = text
                    .parse()
                    .context("option -map-by wants slot, node or PART[:N], as in socket")?;
                self.mapping = Some(Mapping {
                    parts,
                    is_variable: false,
                });
            }
        }
        Ok(())
    }

    /// What comes of it; what is passed over is told to `notices`.
    pub(super) fn finish(self, notices: &mut Vec<String>) -> anyhow::Result<Binding> {
        let Some(Mapping { parts, is_variable }) = self.mapping else {
            return Ok(self.binding);
        };
        match self.binding {
            Binding::Parts { parts: bound, .. } => Ok(Binding::Parts {
                parts: bound,
                mapping: parts,
            }),
            // With one slot for each this is how ranks are dealt anyway, and what others than Hydra mean by it.
            binding if is_variable || matches!(parts.part, Part::Core | Part::HardwareThread) => {
                let what = match is_variable {
                    true => "the variable HYDRA_MAPPING".to_owned(),
                    false => format!("-map-by {parts}"),
                };
                notices.push(format!(
                    "{what} says in which order parts of a host are bound to, and ranks are not bound to parts; it is passed \
                     over"
                ));
                Ok(binding)
            }
            _ => bail!(
                "option -map-by {parts} says in which order parts of a host are bound to, and ranks are not bound to parts: \
                 say to which with -bind-to, as in -bind-to core"
            ),
        }
    }
}

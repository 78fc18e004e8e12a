//! What the driver has to know about an agent's tools, under its permission mode.

use std::sync::Arc;

use toolwright_core::OnInterrupt;
use toolwright_core::policy::PermissionMode;

use crate::dispatch::Dispatch;
use crate::driver::ToolFacts;

/// An agent's tools, as the driver sees them.
pub(crate) struct Facts(pub(crate) Arc<Dispatch>);

impl ToolFacts for Facts {
    fn resolve(&self, written: &str) -> Option<Arc<str>> {
        ToolFacts::resolve(&self.0.registry, written)
    }

    fn is_sequential(&self, tool: &str) -> bool {
        self.0.registry.is_sequential(tool)
    }

    fn after_interrupt(&self, tool: &str) -> OnInterrupt {
        self.0.registry.after_interrupt(tool)
    }

    /// A body that had begun does not come before the gate again: what the mode would say there, it says here.
    fn after_interrupt_in(&self, tool: &str, mode: Option<PermissionMode>) -> OnInterrupt {
        let says = self.after_interrupt(tool);
        let Ok(mode) = mode.map_or_else(|| self.0.permissions.mode(), Ok) else { return OnInterrupt::Fail };
        let reads = || self.0.registry.get(tool).is_some_and(|tool| self.0.permissions.only_reads(tool.spec()));
        match mode {
            PermissionMode::Plan if !reads() => OnInterrupt::Fail,
            PermissionMode::DontAsk if says == OnInterrupt::Ask => OnInterrupt::Fail,
            _ => says,
        }
    }
}

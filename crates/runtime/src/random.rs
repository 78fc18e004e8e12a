//! Ids that nobody else makes; they sort by the time they were made.

use toolwright_core::{RunId, ThreadId};
use uuid::Uuid;

pub(crate) fn run_id() -> RunId {
    RunId::new(format!("run_{}", Uuid::now_v7().simple()))
}

pub(crate) fn thread_id() -> ThreadId {
    // The grammar holds by construction, so the loop ends at once.
    loop {
        if let Ok(id) = ThreadId::new(format!("thread_{}", Uuid::now_v7().simple())) {
            return id;
        }
    }
}

pub(crate) fn call_id() -> toolwright_core::CallId {
    toolwright_core::CallId::new(format!("call_{}", Uuid::now_v7().simple()))
}

pub(crate) fn input_id() -> toolwright_core::InputId {
    toolwright_core::InputId::new(format!("input_{}", Uuid::now_v7().simple()))
}

//! The in-memory store shows the behaviour of every store.
#![cfg(feature = "suite")]

use std::sync::Arc;

use toolwright_runtime::MemoryStore;
use toolwright_store::suite::{Fixture, Opened};

struct Memory;

impl Fixture for Memory {
    fn open(&self) -> Opened<'_> {
        Box::pin(async { Ok(Arc::new(MemoryStore::new()) as Arc<dyn toolwright_runtime::Store>) })
    }

    fn is_shared(&self) -> bool {
        false
    }
}

toolwright_store::store_suite!(Memory);

//! What a tool needs from its run, known before any call.

use std::any::{TypeId, type_name};

/// One thing a tool needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// A shared value of a type.
    State {
        /// The type.
        id: TypeId,
        /// Its name, for the sentence that asks for it.
        type_name: &'static str,
    },
    /// An environment value.
    Env {
        /// The variable.
        name: String,
    },
}

/// What a tool needs; extractors fill it in so that `build()` can name what is missing.
#[derive(Clone, Debug, Default)]
pub struct Requirements {
    needs: Vec<Need>,
}

impl Requirements {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A shared value of the type `T`.
    pub fn state<T: 'static>(&mut self) {
        self.add(Need::State { id: TypeId::of::<T>(), type_name: type_name::<T>() });
    }

    /// An environment value.
    pub fn env(&mut self, name: impl Into<String>) {
        self.add(Need::Env { name: name.into() });
    }

    fn add(&mut self, need: Need) {
        if !self.needs.contains(&need) {
            self.needs.push(need);
        }
    }

    /// All of it.
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }
}

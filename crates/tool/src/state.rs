//! Values that tools share, found by their type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::Arc;

/// A value and its type's name.
type Shared = (Arc<dyn Any + Send + Sync>, &'static str);

/// Values by type. Cheap to clone.
#[derive(Clone, Default)]
pub struct StateMap {
    values: Arc<HashMap<TypeId, Shared>>,
}

/// Two values of one type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two states of the type {type_name} are given; wrap one of them in a type of its own")]
pub struct DuplicateState {
    /// The type.
    pub type_name: &'static str,
}

impl StateMap {
    /// Adds a value; two of one type are an error.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) -> Result<(), DuplicateState> {
        if self.contains::<T>() {
            return Err(DuplicateState { type_name: type_name::<T>() });
        }
        Arc::make_mut(&mut self.values).insert(TypeId::of::<T>(), (Arc::new(value), type_name::<T>()));
        Ok(())
    }

    /// Whether there is a value of the type.
    pub fn contains<T: 'static>(&self) -> bool {
        self.values.contains_key(&TypeId::of::<T>())
    }

    /// Whether there is a value of the type with this id.
    pub fn contains_id(&self, id: TypeId) -> bool {
        self.values.contains_key(&id)
    }

    /// The value of the type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.get(&TypeId::of::<T>()).and_then(|(value, _)| value.downcast_ref())
    }

    /// Names of the types, sorted.
    pub fn type_names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.values.values().map(|(_, name)| *name).collect();
        names.sort_unstable();
        names
    }
}

impl std::fmt::Debug for StateMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.type_names()).finish()
    }
}

//! The behaviour that every store has to show.

//! Policy: permission rules and permission modes, as pure decisions.
//!
//! A [`Rule`] says of which calls it speaks and what is to become of them. [`RuleSet::compile`] checks rules whole and prepares them;
//! [`RuleSet::for_tool`] picks those that can concern a tool; [`ToolRules::judge`] looks at one call, tries the rules in their order,
//! and the first that matches decides. [`PermissionMode::decide`] has the last word.
//!
//! Two principles run through all of it:
//!
//! - **What is in doubt counts for a refusal or a question, never for a yes.** A hint from an origin that is not trusted, an argument that
//!   is a list where one item fits, a command that can't be read: each can make a `deny` or `ask` rule match, and none makes an `allow` rule match.
//! - **A command is judged by what it would run.** A rule about commands sees the list that [`command::read`] gives. Each command of it is
//!   judged by the first rule that matches it; the text is allowed if every part is, and denied if any part is.

pub mod command;

mod args;
mod compile;
mod data;
mod glob;
mod judge;
mod mode;
mod names;
mod rule;

pub use args::ArgMatch;
pub use compile::{InvalidRule, InvalidRules, RuleSet, ToolRules};
pub use judge::{Judged, Judging, RuleCall, Step, Taint};
pub use mode::{Earlier, ModeVerdict, PermissionMode, UnknownMode};
pub use names::{Hints, Matcher, Names, any, destructive, edits_files, glob, idempotent, open_world, origin, read_only, regex};
pub use rule::{CommandMatch, Predicate, Rule, RuleAction, allow, ask, deny};

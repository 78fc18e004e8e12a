//! The environment of a program that a model asked for.

use std::ffi::{OsStr, OsString};

/// What is copied from this process's environment, where it is set (sdk-tools 25.4). `LC_*` is copied too.
const COPIED: &[&str] = &["PATH", "HOME", "USERPROFILE", "TEMP", "TMP", "TMPDIR", "LANG"];

#[cfg(windows)]
const COPIED_TOO: &[&str] = &["SystemRoot", "SystemDrive", "ComSpec", "PATHEXT", "WINDIR"];
#[cfg(not(windows))]
const COPIED_TOO: &[&str] = &[];

/// What keeps programs from paging, prompting, editing and drawing: nobody sits before them.
const SET: &[(&str, &str)] = &[
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("AWS_PAGER", ""),
    ("GH_PAGER", "cat"),
    ("GH_PROMPT_DISABLED", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GIT_SSH_COMMAND", "ssh -o BatchMode=yes"),
    ("GIT_EDITOR", "false"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PIP_NO_INPUT", "1"),
];

/// Where a program's variables come from. What is set here wins over what is copied.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    everything: bool,
    bare: bool,
    inherited: Vec<OsString>,
    set: Vec<(OsString, OsString)>,
}

impl Environment {
    /// `PATH`, `HOME`, folders for temporary files and the language of this process, and what keeps programs from waiting for somebody:
    /// no pager, no prompt, no editor, no colours. Everything else, keys above all, stays here.
    pub fn scrubbed() -> Self {
        Self::default()
    }

    /// All of this process's environment, its keys among them.
    pub fn everything() -> Self {
        Self { everything: true, bare: true, ..Self::default() }
    }

    /// Nothing.
    pub fn empty() -> Self {
        Self { bare: true, ..Self::default() }
    }

    /// Copies one more variable from this process, where it is set.
    #[must_use]
    pub fn inherit(mut self, name: impl Into<OsString>) -> Self {
        self.inherited.push(name.into());
        self
    }

    /// Copies everything from this process; what keeps programs from waiting stays as it is here.
    #[must_use]
    pub fn inherit_everything(mut self) -> Self {
        self.everything = true;
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn set(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.set.push((name.into(), value.into()));
        self
    }

    /// The variables, each once, in the order of their names.
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        self.over(std::env::vars_os())
    }

    fn over(&self, process: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
        let copied = |name: &OsStr| {
            self.everything
                || self.inherited.iter().any(|wanted| wanted == name)
                || (!self.bare
                    && name.to_str().is_some_and(|name| COPIED.contains(&name) || COPIED_TOO.contains(&name) || name.starts_with("LC_")))
        };
        let mut all: std::collections::BTreeMap<OsString, OsString> = process.filter(|(name, _)| copied(name)).collect();
        if !self.bare {
            for (name, value) in SET {
                if !self.inherited.iter().any(|wanted| wanted == name) {
                    all.insert(OsString::from(name), OsString::from(value));
                }
            }
        }
        all.extend(self.set.iter().cloned());
        all.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> impl Iterator<Item = (OsString, OsString)> {
        let all = [
            ("PATH", "/bin"),
            ("HOME", "/srv/ada"),
            ("LC_ALL", "C"),
            ("LANG", "C"),
            ("TERM", "xterm"),
            ("OPENAI_API_KEY", "sk-1"),
            ("EDITOR", "vim"),
            ("LD_PRELOAD", "x.so"),
        ];
        all.into_iter().map(|(name, value)| (name.into(), value.into()))
    }

    fn seen(environment: &Environment, name: &str) -> Option<String> {
        let variables = environment.over(process());
        variables.into_iter().find(|(known, _)| known == name).map(|(_, value)| value.to_string_lossy().into_owned())
    }

    // rule: sdk-tools 25.4/2
    #[test]
    fn only_what_is_named_is_copied() {
        let scrubbed = Environment::scrubbed();
        for (name, value) in [("PATH", "/bin"), ("HOME", "/srv/ada"), ("LC_ALL", "C"), ("LANG", "C")] {
            assert_eq!(seen(&scrubbed, name).as_deref(), Some(value), "{name}");
        }
        for name in ["OPENAI_API_KEY", "LD_PRELOAD"] {
            assert_eq!(seen(&scrubbed, name), None, "{name}");
        }
        for (name, value) in [("TERM", "dumb"), ("PAGER", "cat"), ("EDITOR", "false"), ("GIT_TERMINAL_PROMPT", "0")] {
            assert_eq!(seen(&scrubbed, name).as_deref(), Some(value), "{name}");
        }
    }

    // rule: sdk-tools 25.4/3
    #[test]
    fn more_is_set_and_inherited_by_name_or_whole() {
        let named = Environment::scrubbed().inherit("OPENAI_API_KEY").inherit("EDITOR").set("PATH", "/opt").set("X", "1");
        assert_eq!(seen(&named, "OPENAI_API_KEY").as_deref(), Some("sk-1"));
        assert_eq!(seen(&named, "EDITOR").as_deref(), Some("vim"), "who inherits a variable by name means it");
        assert_eq!((seen(&named, "PATH").as_deref(), seen(&named, "X").as_deref()), (Some("/opt"), Some("1")));
        assert_eq!(seen(&named, "LD_PRELOAD"), None);
        let whole = Environment::scrubbed().inherit_everything();
        assert_eq!((seen(&whole, "LD_PRELOAD").as_deref(), seen(&whole, "PAGER").as_deref()), (Some("x.so"), Some("cat")));
        assert_eq!(seen(&Environment::everything(), "PAGER"), None);
        assert!(Environment::empty().over(process()).is_empty());
    }
}

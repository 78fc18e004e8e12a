//! Commands that run other commands: what they run is listed too.

use super::{Expands, MAX_DEPTH, Redirect, Script, SimpleCommand, Word, parse, read_into};

/// How a command that runs another one is called.
struct Wrapper {
    name: &'static str,
    /// Options of one letter that take nothing.
    flags: &'static str,
    /// Options of one letter that take a value, in the same word or the next.
    valued: &'static str,
    /// Long options that take nothing.
    long: &'static [&'static str],
    /// Long options that take a value, after `=` or in the next word.
    long_valued: &'static [&'static str],
    /// How many words stand between the options and the command.
    operands: usize,
    /// Assignments may stand before the command.
    assigns: bool,
    /// It does nothing but run the command: allowing the command is enough.
    harmless: bool,
}

const PLAIN: Wrapper =
    Wrapper { name: "", flags: "", valued: "", long: &[], long_valued: &[], operands: 0, assigns: false, harmless: true };

const WRAPPERS: &[Wrapper] = &[
    Wrapper { name: "nohup", ..PLAIN },
    Wrapper { name: "builtin", ..PLAIN },
    Wrapper { name: "command", flags: "p", ..PLAIN },
    Wrapper { name: "exec", flags: "cl", valued: "a", ..PLAIN },
    Wrapper { name: "setsid", flags: "cfw", long: &["ctty", "fork", "wait"], ..PLAIN },
    Wrapper { name: "nice", valued: "n", long_valued: &["adjustment"], ..PLAIN },
    Wrapper { name: "ionice", flags: "t", valued: "cn", long: &["ignore"], long_valued: &["class", "classdata"], ..PLAIN },
    Wrapper { name: "stdbuf", valued: "ioe", long_valued: &["input", "output", "error"], ..PLAIN },
    Wrapper {
        name: "timeout",
        flags: "v",
        valued: "ks",
        long: &["preserve-status", "foreground", "verbose"],
        long_valued: &["kill-after", "signal"],
        operands: 1,
        ..PLAIN
    },
    Wrapper { name: "time", flags: "pv", long: &["portability", "verbose"], ..PLAIN },
    Wrapper {
        name: "env",
        flags: "i0v",
        valued: "u",
        long: &["ignore-environment", "null", "debug"],
        long_valued: &["unset"],
        assigns: true,
        ..PLAIN
    },
    Wrapper {
        name: "xargs",
        flags: "0rtpx",
        valued: "IndLPsaE",
        long: &["null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty"],
        long_valued: &["max-args", "max-procs", "max-chars", "arg-file", "delimiter"],
        ..PLAIN
    },
    Wrapper {
        name: "sudo",
        flags: "nSkKHEbPA",
        valued: "ughpCTRDrtU",
        long: &["non-interactive", "stdin", "set-home", "preserve-env", "background", "reset-timestamp", "askpass"],
        long_valued: &["user", "group", "host", "prompt", "chdir", "chroot", "command-timeout"],
        assigns: true,
        harmless: false,
        ..PLAIN
    },
    Wrapper { name: "doas", flags: "nL", valued: "uC", harmless: false, ..PLAIN },
];

/// Shells that read POSIX text.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "mksh"];

/// Commands that run what they are told in ways that are not read here.
const OPAQUE: [&str; 24] = [
    "zsh",
    "fish",
    "csh",
    "tcsh",
    "pwsh",
    "powershell",
    "cmd",
    "su",
    "runuser",
    "pkexec",
    "ssh",
    "parallel",
    "watch",
    "script",
    "flock",
    "unshare",
    "nsenter",
    "chroot",
    "strace",
    "ltrace",
    "gdb",
    "busybox",
    "toybox",
    "coproc",
];

/// Builtins that take names of variables, in which a shell evaluates subscripts.
const NAME_TAKERS: [&str; 10] = ["declare", "typeset", "local", "export", "readonly", "unset", "read", "mapfile", "readarray", "getopts"];

/// Operators of `[[` whose sides are arithmetic.
const ARITHMETIC: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

/// Lists what `command` runs. Says whether that is all it does.
pub(super) fn unwrap(command: &SimpleCommand, script: &mut Script, depth: usize) -> bool {
    let Some(name) = command.words.first().and_then(Word::known) else { return false };
    if depth > MAX_DEPTH {
        script.doubt("its commands stand too deep in each other");
        return false;
    }
    let (folder, base) = name.rsplit_once('/').map_or((None, name), |(folder, base)| (Some(folder), base));
    // A file of that name that stands elsewhere may do anything, but runs its command nonetheless.
    let known_place = matches!(folder, None | Some("/bin" | "/usr/bin"));
    let rest = command.words.get(1..).unwrap_or_default();
    let only_wraps = match base {
        "eval" => eval(rest, script, depth),
        "trap" => trap(rest, script, depth),
        "find" => find(rest, script, depth),
        "alias" => {
            if rest.iter().any(|word| word.known().is_none_or(|text| text.contains('='))) {
                script.doubt("it defines an alias");
            }
            false
        }
        base if SHELLS.contains(&base) => shell(base, rest, script, depth),
        base if OPAQUE.contains(&base) => {
            script.doubt(format!("what `{base}` runs is not read"));
            false
        }
        "." | "source" => {
            if rest.first().and_then(Word::known).is_none_or(is_stream) {
                script.doubt(format!("what `{base}` reads is not known"));
            }
            false
        }
        base if may_evaluate(base, rest) => {
            script.doubt(format!("`{base}` may evaluate what it is given"));
            false
        }
        base => match WRAPPERS.iter().find(|wrapper| wrapper.name == base) {
            Some(wrapper) => wrapped(wrapper, rest, script, depth),
            None => false,
        },
    };
    only_wraps && known_place && command.assignments.is_empty() && !command.redirects.iter().any(Redirect::touches_a_file)
}

/// Whether a file is what some other command writes, or what stands on standard input.
fn is_stream(file: &str) -> bool {
    file == "-" || file.starts_with("/dev/") || file.starts_with("/proc/")
}

/// Whether a builtin may take its arguments for code: arithmetic runs the substitutions in a subscript.
fn may_evaluate(name: &str, words: &[Word]) -> bool {
    let known = |word: &Word| word.expands == Expands::No;
    let has_subscript = |word: &Word| word.text.contains('[') && word.text.contains(']');
    let named = |options: &[&str]| words.iter().any(|word| options.contains(&word.text.as_str()));
    let number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
    };
    match name {
        "let" => true,
        "printf" => {
            let option = words.first().is_none_or(|word| !known(word) || word.text.starts_with("-v"));
            option && words.iter().any(|word| !known(word) || has_subscript(word))
        }
        "test" | "[" => named(&["-v", "-R"]) || words.iter().any(|word| known(word) && word.text.contains("$(")),
        "[[" => {
            let sides = words.windows(3).filter(|three| three.get(1).is_some_and(|op| ARITHMETIC.contains(&op.text.as_str())));
            let computed = |side: Option<&Word>| side.is_none_or(|word| !word.known().is_some_and(number));
            let arithmetic = sides.into_iter().any(|three| computed(three.first()) || computed(three.last()));
            named(&["-v", "-R"]) || arithmetic || words.iter().any(|word| known(word) && word.text.contains("$("))
        }
        name if NAME_TAKERS.contains(&name) => {
            let option = |word: &Word| word.text.starts_with('-') && word.text.contains(['i', 'n', 'a', 'A', 'C']);
            words.iter().any(|word| {
                // `export NAME="$value"` sets it to whatever that is; only a name that is computed is code.
                let plain = known(word) || word.text.split_once('=').is_some_and(|(name, _)| parse::is_name(name));
                !plain || has_subscript(word) || (name != "read" && option(word))
            })
        }
        _ => false,
    }
}

/// What an option is to a wrapper.
enum Option_ {
    Flag,
    /// Its value is the next word.
    TakesNext,
    /// Not known, so nobody can tell where the command begins.
    Unknown,
}

impl Wrapper {
    fn option(&self, text: &str) -> Option_ {
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            return match value {
                None if self.long.contains(&name) => Option_::Flag,
                None if self.long_valued.contains(&name) => Option_::TakesNext,
                Some(_) if self.long_valued.contains(&name) || (self.name == "sudo" && name == "preserve-env") => Option_::Flag,
                _ => Option_::Unknown,
            };
        }
        // `nice -5` is an old form.
        if self.name == "nice" && text.strip_prefix('-').is_some_and(|text| text.chars().all(|c| c.is_ascii_digit())) {
            return Option_::Flag;
        }
        let mut letters = text.chars().skip(1).peekable();
        while let Some(letter) = letters.next() {
            if self.valued.contains(letter) {
                return if letters.peek().is_some() { Option_::Flag } else { Option_::TakesNext };
            }
            if !self.flags.contains(letter) {
                return Option_::Unknown;
            }
        }
        Option_::Flag
    }
}

fn wrapped(wrapper: &Wrapper, words: &[Word], script: &mut Script, depth: usize) -> bool {
    let unknown = |script: &mut Script| {
        script.doubt(format!("what `{}` runs can't be told from its options", wrapper.name));
        false
    };
    if wrapper.name == "command" && words.first().and_then(Word::known).is_some_and(|text| matches!(text, "-v" | "-V")) {
        // It only tells where a command is.
        return false;
    }
    let mut words = words.iter().peekable();
    let mut replaces: Option<String> = None;
    while let Some(word) = words.peek() {
        let Some(text) = word.known() else { return unknown(script) };
        if text == "--" {
            words.next();
            break;
        }
        if text == "-" && wrapper.name == "env" {
            words.next();
            continue;
        }
        if !text.starts_with('-') || text == "-" {
            break;
        }
        if wrapper.name == "xargs" && text.contains('I') && !text.starts_with("-I") && !text.starts_with("--") {
            return unknown(script);
        }
        if wrapper.name == "xargs" && text.starts_with("-I") {
            replaces = text.strip_prefix("-I").filter(|text| !text.is_empty()).map(str::to_owned);
        }
        match wrapper.option(text) {
            Option_::Flag => {
                words.next();
            }
            Option_::TakesNext => {
                let is_replace = text == "-I";
                words.next();
                let value = words.next();
                if is_replace {
                    let Some(value) = value.and_then(|value| value.known()) else { return unknown(script) };
                    replaces = Some(value.to_owned());
                }
            }
            Option_::Unknown => return unknown(script),
        }
    }
    for _ in 0..wrapper.operands {
        match words.next() {
            Some(word) if word.expands != Expands::Many => {}
            _ => return unknown(script),
        }
    }
    let mut assigned = false;
    if wrapper.assigns {
        while let Some((name, _)) = words.peek().and_then(|word| word.text.split_once('=')) {
            if !parse::is_name(name) {
                // Some take any word with `=` for an assignment, others for the command.
                return unknown(script);
            }
            words.next();
            assigned = true;
        }
    }
    let mut inner: Vec<Word> = words.cloned().collect();
    if wrapper.name == "xargs" {
        if inner.is_empty() {
            // It prints.
            return false;
        }
        match &replaces {
            Some(mark) => {
                for word in inner.iter_mut().filter(|word| word.text.contains(mark.as_str())) {
                    word.expands = if word.expands == Expands::Many { Expands::Many } else { Expands::One };
                }
            }
            None => inner.push(Word::unknown()),
        }
    }
    run(inner, script, depth) && wrapper.harmless && !assigned
}

/// Adds a command that another one runs. Says whether there is one.
fn run(words: Vec<Word>, script: &mut Script, depth: usize) -> bool {
    match words.first() {
        None => false,
        Some(name) if name.expands != Expands::No => {
            script.doubt("the name of a command is computed");
            false
        }
        // Options may stand where they are not looked for, as after the assignments of `sudo`.
        Some(name) if name.text.starts_with('-') => {
            script.doubt("what is run can't be told from the options before it");
            false
        }
        Some(_) => {
            script.add(SimpleCommand { words, ..SimpleCommand::default() }, depth + 1);
            true
        }
    }
}

fn eval(words: &[Word], script: &mut Script, depth: usize) -> bool {
    let texts: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    let Some(texts) = texts else {
        script.doubt("`eval` gets a text that is computed");
        return false;
    };
    read_into(&texts.join(" "), script, depth + 1);
    true
}

fn trap(words: &[Word], script: &mut Script, depth: usize) -> bool {
    match words.first().map(Word::known) {
        None | Some(Some("-" | "-l" | "-p" | "")) => {}
        Some(Some(text)) if !text.starts_with('-') => read_into(text, script, depth + 1),
        _ => script.doubt("`trap` gets a text that is computed"),
    }
    false
}

/// `sh -c TEXT`, `sh FILE`, or a shell that reads its commands from elsewhere.
fn shell(name: &str, words: &[Word], script: &mut Script, depth: usize) -> bool {
    let mut words = words.iter();
    let mut takes_text = false;
    while let Some(word) = words.next() {
        let Some(text) = word.known() else {
            script.doubt(format!("what `{name}` runs is computed"));
            return false;
        };
        let is_option = text.len() > 1 && (text.starts_with('-') || text.starts_with('+'));
        if !is_option {
            if !takes_text {
                // A file; what is in it is not part of this text.
                if is_stream(text) {
                    script.doubt(format!("`{name}` reads its commands from elsewhere"));
                }
                return false;
            }
            read_into(text, script, depth + 1);
            return true;
        }
        match text {
            "--version" | "--help" => return false,
            "--" => {}
            "--login" | "--norc" | "--noprofile" | "--posix" => {}
            "-o" | "+o" | "-O" | "+O" => {
                words.next();
            }
            long if long.starts_with("--") => {
                script.doubt(format!("what `{name}` runs can't be told from its options"));
                return false;
            }
            short => {
                let letters = || short.chars().skip(1);
                // `-o` and `-O` take a word each, in an order that shells differ in; `-s` reads commands from elsewhere.
                if letters().any(|letter| !"cleuxvnfabhkmptBCEHPT".contains(letter)) {
                    script.doubt(format!("what `{name}` runs can't be told from its options"));
                    return false;
                }
                takes_text |= letters().any(|letter| letter == 'c');
            }
        }
    }
    script.doubt(format!("`{name}` reads its commands from elsewhere"));
    false
}

fn find(words: &[Word], script: &mut Script, depth: usize) -> bool {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.known() {
            Some("-exec" | "-execdir" | "-ok" | "-okdir") => {}
            Some(_) => continue,
            None if word.expands == Expands::Many || word.text.starts_with('-') || word.text.is_empty() => {
                script.doubt("what `find` runs is computed");
                continue;
            }
            None => continue,
        }
        let mut inner: Vec<Word> = Vec::new();
        let mut ended = false;
        for word in words.by_ref() {
            let ends = match word.known() {
                Some(";") => true,
                Some("+") => inner.last().is_some_and(|last| last.text == "{}"),
                _ => false,
            };
            if ends {
                ended = true;
                break;
            }
            inner.push(word.clone());
        }
        if !ended {
            script.doubt("what `find` runs has no end");
        }
        for word in inner.iter_mut().filter(|word| word.text.contains("{}")) {
            word.expands = Expands::Many;
        }
        run(inner, script, depth);
    }
    false
}

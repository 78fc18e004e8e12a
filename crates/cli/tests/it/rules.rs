//! `--rules` and `--mode`.

use serde_json::Value;

use crate::support::server::{Reply, Server};
use crate::support::{Ended, Home};

const CALL: Reply = Reply::Calls(&[("day_name", r#"{"date":"1999-12-31"}"#)]);

/// A run of one call of `day_name` under the rules of a file.
fn under(name: &str, rules: &str, more: &[&str]) -> Ended {
    let server = Server::new(vec![CALL, Reply::Text(&["So be it."])]);
    let home = Home::new();
    let file = home.path().join(name);
    std::fs::write(&file, rules).unwrap();
    let mut arguments = vec!["run", "What day?", "--json", "--rules", file.to_str().unwrap()];
    arguments.extend(more);
    home.run_with(&arguments, &server.env(), "")
}

fn events(ended: &Ended) -> Vec<Value> {
    ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(events: &'a [Value], kind: &str) -> Option<&'a Value> {
    events.iter().find(|event| event["type"] == kind)
}

#[test]
fn rules_of_a_file_hold() {
    let toml = "[[rules]]\ntools = \"day_*\"\nwhen = { date = \"^1999\" }\naction = \"deny\"\nreason = \"not that year\"\n";
    let json = r#"[{ "tool": "day_name", "when": { "date": { "prefix": "1999" } }, "action": "deny", "reason": "not that year" }]"#;
    for (name, rules) in [("rules.toml", toml), ("rules.json", json)] {
        let ended = under(name, rules, &[]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let events = events(&ended);
        assert_eq!(of(&events, "permission.decision").unwrap()["reason"], "not that year", "{name}");
        assert!(of(&events, "tool.error").is_some() && of(&events, "tool.done").is_none());
    }
    let elsewhere = under("rules.toml", &toml.replace("1999", "2026"), &[]);
    assert!(of(&events(&elsewhere), "tool.done").is_some());
}

#[test]
fn a_mode_holds_for_the_run() {
    // The built-in tool only reads, so a plan may use it; what would ask is refused where nobody is asked.
    let asks = "[[rules]]\ntools = \"*\"\naction = \"ask\"\n";
    let ended = under("rules.toml", asks, &["--mode", "dontAsk"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let refused = events(&ended);
    assert_eq!(of(&refused, "permission.mode").unwrap()["to"], "dontAsk");
    assert_eq!(of(&refused, "permission.decision").unwrap()["mode"], "dontAsk");
    assert!(of(&refused, "tool.error").is_some());
    let planned = under("rules.toml", "[[rules]]\ntools = \"*\"\naction = \"allow\"\n", &["--mode", "plan"]);
    assert!(of(&events(&planned), "tool.done").is_some(), "{}", planned.out);
}

#[test]
fn bad_rules_are_told_all_at_once_and_nothing_is_sent() {
    let refused = |name: &str, rules: &str, said: &str| {
        let ended = under(name, rules, &[]);
        let folder = ended.err.split_once(" in ").and_then(|(_, rest)| rest.split_once(name)).unwrap().0;
        let shown = ended.err.replace(folder, "");
        assert_eq!((ended.code, ended.out.as_str(), shown.as_str()), (Some(2), "", said));
    };
    let wrong =
        "[[rules]]\ntools = \"day_name\"\naction = \"alow\"\n\n[[rules]]\ntools = { regex = \"(\" }\nacton = \"deny\"\naction = \"deny\"\n";
    let ended = under("rules.toml", wrong, &[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    for says in [
        "rules.toml can't be used: 3 things are wrong [TOOLWRIGHT_CONFIG_INVALID]\n",
        "  rule 0, `action`: `alow` is no action; use `allow`, `deny` or `ask`\n",
        "  rule 1, `acton`: is not known; a rule has `tools`",
        "  rule 1, `tools`: `(` is no regular expression: unclosed group\n",
    ] {
        assert!(ended.err.contains(says), "{}", ended.err);
    }
    refused(
        "rules.json",
        "[{\"a\": 1, \"a\": 2}]",
        "error: the rules in rules.json can't be read: the key \"a\" is given twice at line 1 column 11 [TOOLWRIGHT_CONFIG_INVALID]\n",
    );
    let broken = under("rules.toml", "a = \n", &[]);
    assert!(broken.err.contains("can't be read: ") && broken.err.contains("at line 1"), "{}", broken.err);
    let yaml = under("rules.yaml", "", &[]);
    assert!(
        yaml.err.ends_with("rules.yaml is no file of rules [TOOLWRIGHT_CONFIG_INVALID]\nhint: give a file that ends with .toml or .json\n"),
        "{}",
        yaml.err
    );
    let missing = Home::new().run(&["run", "hi", "--rules", "nowhere.toml", "--model", "openai/x"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.starts_with("error: the rules in nowhere.toml can't be read: "), "{}", missing.err);
    let mode = Home::new().run(&["run", "hi", "--mode", "yolo"]);
    assert_eq!(
        mode.err,
        "error: `yolo` is not a value of `--mode` [TOOLWRIGHT_CONFIG_INVALID]\nhint: use one of default, plan, acceptEdits, dontAsk\n"
    );
}

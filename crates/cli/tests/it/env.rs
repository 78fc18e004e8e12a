//! `toolwright env`.

use serde_json::{Value, json};

use crate::support::{Ended, Home};

const KEY: (&str, &str) = ("ENCRYPTION_KEY", "a key of sixteen and more");

fn run(home: &Home, arguments: &[&str], env: &[(&str, &str)], input: &str) -> Ended {
    home.run_with(&[arguments, &["--store", "threads.db"]].concat(), env, input)
}

fn listed(home: &Home, env: &[(&str, &str)]) -> Value {
    let ended = run(home, &["env", "list", "t", "--json"], env, "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.out).unwrap()
}

#[test]
fn a_variable_is_set_listed_without_its_value_and_removed() {
    let home = Home::new();
    let set = run(&home, &["env", "set", "t", "TOKEN"], &[KEY], "top-secret-value\n");
    assert_eq!((set.code, set.out.as_str(), set.err.as_str()), (Some(0), "", "TOKEN of the thread t is set\n"));
    let set = run(&home, &["env", "set", "t", "REGION", "--type", "text"], &[KEY], "eu-west-1");
    assert_eq!(set.code, Some(0), "{set:?}");

    let list = run(&home, &["env", "list", "t"], &[KEY], "");
    // What no tool declares shows as a secret.
    assert_eq!((list.code, list.out.as_str(), list.err.as_str()), (Some(0), "REGION  secret\nTOKEN   secret\n", ""));
    let row = |name: &str, problem: Value| json!({ "name": name, "type": "secret", "declared": false, "problem": problem });
    assert_eq!(listed(&home, &[KEY]), json!({ "env": [row("REGION", Value::Null), row("TOKEN", Value::Null)] }));
    let without = run(&home, &["env", "list", "t"], &[], "");
    assert!(without.out.contains("TOKEN   secret  the environment value TOKEN is encrypted, and no key is there"), "{without:?}");
    let wrong = run(&home, &["env", "list", "t"], &[("ENCRYPTION_KEY", "another key of sixteen")], "");
    assert!(wrong.out.contains("can't be decrypted with the key in `ENCRYPTION_KEY`"), "{wrong:?}");
    // The other name comes first.
    let own = run(&home, &["env", "list", "t"], &[("ENCRYPTION_KEY", "short"), ("TOOLWRIGHT_ENCRYPTION_KEY", KEY.1)], "");
    assert_eq!(own.out, list.out);

    let kept = std::fs::read(home.path().join("threads.db")).unwrap();
    for value in ["top-secret-value", "eu-west-1"] {
        assert!(!kept.windows(value.len()).any(|window| window == value.as_bytes()));
    }
    let unset = run(&home, &["env", "unset", "t", "TOKEN"], &[], "");
    assert_eq!((unset.code, unset.err.as_str()), (Some(0), "TOKEN of the thread t is not set\n"));
    assert_eq!(listed(&home, &[KEY])["env"].as_array().unwrap().len(), 1);
}

#[test]
fn what_can_not_be_set_is_refused_with_a_sentence_and_without_the_value() {
    let home = Home::new();
    let refused = |arguments: &[&str], env: &[(&str, &str)], input: &str, said: &str| {
        let ended = run(&home, arguments, env, input);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains(said) && !ended.err.contains("hush"), "{}", ended.err);
    };
    let set = ["env", "set", "t", "TOKEN"];
    refused(&set, &[], "hush-hush-hush", "hint: set `ENCRYPTION_KEY` to a random text");
    refused(&set, &[KEY], "hush", "the secret TOKEN has fewer than 6 characters");
    refused(&set, &[("ENCRYPTION_KEY", "short")], "hush-hush-hush", "the key in `ENCRYPTION_KEY` is too short");
    refused(&["env", "set", "t", "NO NAME"], &[KEY], "hush-hush-hush", "the name of an environment value is \"NO NAME\"");
    refused(&["env", "set", "a b", "TOKEN"], &[KEY], "hush-hush-hush", "a b");
    let memory = home.run_with(&["env", "set", "t", "TOKEN", "--store", "memory:"], &[KEY], "hush-hush-hush");
    assert!(memory.err.contains("keeps nothing from one command to the next"), "{memory:?}");
    // A value on the command line is no argument of the command.
    let typed = run(&home, &["env", "set", "t", "TOKEN", "hush-hush-hush"], &[KEY], "");
    assert_eq!(typed.code, Some(2));
}

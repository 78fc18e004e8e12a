//! The email tool.

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use toolwright_tool::core::OnInterrupt;
use toolwright_tool::{NeedsApproval, ToolContext, ToolError, ToolFailureKind};
use toolwright_tools::integrations::{Credential, Email, Security};

use crate::call::{TOKEN, begin, parts};
use crate::smtp::{Instead, Smtp, Tls};

fn email(server: &Smtp, security: Security) -> Email {
    Email::new("localhost", "Acme Bot <bot@acme.example>").port(server.port).security(security).trusting(server.pem.clone())
}

async fn send_with(email: Email, args: Value) -> Result<Value, ToolError> {
    let tool = email.tool().unwrap();
    begin(&tool, parts(&tool, args, &[("SMTP_PASSWORD", TOKEN)])).await
}

async fn send(server: &Smtp, args: Value) -> Result<Value, ToolError> {
    send_with(email(server, Security::Plain), args).await
}

fn hello() -> Value {
    json!({ "to": ["kim@acme.example"], "subject": "Hello", "text": "Hi." })
}

// rule: sdk-tools 9.6
#[test]
fn the_tool_asks() {
    let tool = Email::new("smtp.acme.example", "bot@acme.example")
        .login("bot", Credential::env("SMTP_PASSWORD"))
        .allowed_recipients(["*@acme.example"])
        .tool()
        .unwrap();
    let spec = tool.spec();
    assert_eq!(spec.description, "Sends an email, as text, as HTML or as both, with attachments. It may go to *@acme.example.");
    assert_eq!((spec.annotations.open_world_hint, spec.annotations.read_only()), (Some(true), false));
    assert!(matches!(tool.needs_approval(), NeedsApproval::Always));
    assert_eq!(spec.on_interrupt, Some(OnInterrupt::Ask));
    let [need] = spec.env.as_slice() else { panic!("one variable") };
    assert_eq!((need.name.as_str(), need.secret, need.required), ("SMTP_PASSWORD", true, true));
    assert!(Email::new("smtp.acme.example", "bot@acme.example").tool().unwrap().spec().env.is_empty());
}

// rule: sdk-tools 9.6
#[test]
fn options_that_cannot_be_used_are_refused() {
    let new = || Email::new("smtp.acme.example", "bot@acme.example");
    let refused = |email: Email| email.tool().unwrap_err().to_string();
    assert!(refused(new().security(Security::Plain)).contains("without TLS only a server on this machine is used"));
    assert!(refused(Email::new("smtp.acme.example/x", "bot@acme.example")).contains("no name or address of a host"));
    assert!(refused(Email::new("smtp.acme.example", "bot")).starts_with("the option `from` can't be used"));
    assert!(refused(new().reply_to("a@b.example\r\nX: y")).contains("a line break"));
    assert!(refused(new().allowed_recipients(["acme.example"])).contains("is no pattern"));
    assert!(refused(new().login("", Credential::env("X"))).contains("the user's name is empty"));
    assert!(refused(new().login("bot", Credential::value("abc"))).contains("fewer than 6 characters"));
    assert!(refused(new().trusting("-----BEGIN CERTIFICATE-----\nAA==")).starts_with("the option `trusting` can't be used"));
    assert!(refused(new().timeout(Duration::ZERO)).contains("it is zero"));
    let shown = format!("{:?}", new().login("bot", Credential::value(TOKEN)));
    assert!(shown.contains("bot") && !shown.contains(TOKEN), "{shown}");
}

#[tokio::test]
async fn an_email_goes_out_as_text_and_html() {
    let server = Smtp::start(Tls::None, &[]).await;
    let args = json!({
        "to": ["Kim Ro <kim@acme.example>", "lee@acme.example"], "cc": ["KIM@acme.example", "max@acme.example"], "bcc": ["boss@acme.example"],
        "subject": "Grüße, \u{1f600}", "text": "Hällo\nyou\n", "html": "<p>Hällo</p>",
    });
    let sent = send_with(email(&server, Security::Plain).reply_to("desk@acme.example"), args).await.unwrap();
    assert_eq!((&sent["sent"], &sent["recipients"]), (&json!(true), &json!(4)));
    let commands = server.commands();
    let envelope = [
        "MAIL FROM:<bot@acme.example>",
        "RCPT TO:<kim@acme.example>",
        "RCPT TO:<lee@acme.example>",
        "RCPT TO:<max@acme.example>",
        "RCPT TO:<boss@acme.example>",
        "DATA",
        "QUIT",
    ];
    assert_eq!(commands[1..], envelope);
    let message = server.message();
    for line in [
        "From: \"Acme Bot\" <bot@acme.example>\r\n",
        "To: \"Kim Ro\" <kim@acme.example>, lee@acme.example\r\n",
        "Cc: max@acme.example\r\n",
        "Reply-To: desk@acme.example\r\n",
        "MIME-Version: 1.0\r\n",
        "Content-Type: multipart/alternative;",
        "Content-Type: text/plain; charset=utf-8\r\n",
        "Content-Type: text/html; charset=utf-8\r\n",
        "\r\n\r\nSMOkbGxvDQp5b3UNCg==\r\n",
        "<p>H=C3=A4llo</p>",
    ] {
        assert!(message.contains(line), "{line} in {message}");
    }
    assert!(message.contains(&format!("Message-ID: {}\r\n", sent["message_id"].as_str().unwrap())), "{message}");
    assert!(message.contains("\r\nDate: ") && message.contains("Subject: =?utf-8?"), "{message}");
    assert!(message.is_ascii() && !message.contains("boss"), "nobody sees who got a hidden copy: {message}");
}

#[tokio::test]
async fn attachments_go_along_byte_for_byte() {
    let server = Smtp::start(Tls::None, &[]).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let packed = base64::engine::general_purpose::STANDARD.encode([1_u8, 2, 3]);
    let args = json!({ "to": ["kim@acme.example"], "subject": "Files", "text": "See there.", "attachments": [
        { "path": "/out/Übersicht.bin" },
        { "base64": packed, "name": "a.png", "media_type": "image/png" },
        { "content": "a,b\n1,2\n", "name": "t.csv" },
        { "content": "x", "name": "mail.eml", "media_type": "message/rfc822" },
    ] });
    let tool = email(&server, Security::Plain).tool().unwrap();
    let context = parts(&tool, args, &[]);
    ToolContext::new(context.clone()).files().write("/out/Übersicht.bin", bytes.clone()).await.unwrap();
    begin(&tool, context).await.unwrap();
    let message = server.message();
    let unpacked = |marker: &str| {
        let (_, part) = message.split_once(marker).unwrap_or_else(|| panic!("no {marker} in {message}"));
        let (_, content) = part.split_once("\r\n\r\n").unwrap();
        let (content, _) = content.split_once("\r\n--").unwrap();
        let content: String = content.split_whitespace().collect();
        base64::engine::general_purpose::STANDARD.decode(content).unwrap()
    };
    assert_eq!(unpacked("filename*0*=utf-8''%C3%9Cbersicht.bin"), bytes, "{message}");
    assert_eq!(unpacked("filename=\"a.png\""), [1, 2, 3]);
    assert_eq!(unpacked("filename=\"t.csv\""), b"a,b\n1,2\n");
    assert!(message.contains("Content-Type: image/png\r\n") && message.contains("Content-Type: text/csv\r\n"), "{message}");
    assert!(!message.contains("message/rfc822"), "{message}");

    for (attachments, path) in [
        (json!([{ "path": "/none", "name": "x" }]), "attachments.0.path"),
        (json!([{ "name": "x" }]), "attachments.0.path"),
        (json!([{ "content": "x", "base64": "eA==", "name": "x" }]), "attachments.0.path"),
        (json!([{ "content": "x" }]), "attachments.0.name"),
        (json!([{ "content": "x", "name": "ok" }, { "content": "x", "name": "a\r\nX-Evil: 1" }]), "attachments.1.name"),
        (json!([{ "content": "x", "name": "a\"; x=\"b" }]), "attachments.0.name"),
        (json!([{ "content": "x", "name": "../../etc/passwd" }]), "attachments.0.name"),
        (json!([{ "content": "x", "name": "a", "media_type": "text/plain\r\nX-Evil: 1" }]), "attachments.0.media_type"),
        (json!([{ "content": "x", "name": "a", "media_type": "text/plain; boundary=x" }]), "attachments.0.media_type"),
        (json!([{ "base64": "%%%", "name": "a" }]), "attachments.0.base64"),
    ] {
        let args = json!({ "to": ["kim@acme.example"], "subject": "Files", "text": "x", "attachments": attachments });
        assert_eq!(send(&server, args.clone()).await.unwrap_err().to_failure("t").issues[0].path, path, "{args}");
    }
    let large = json!([{ "content": "12345678", "name": "a" }, { "base64": "AAAAAAAA", "name": "b" }]);
    let args = json!({ "to": ["kim@acme.example"], "subject": "Files", "text": "x", "attachments": large });
    let error = send_with(email(&server, Security::Plain).largest_attachments(10), args).await.unwrap_err();
    assert_eq!(error.message(), "the attachments have more than the 10 bytes that may go with one email");
    assert_eq!(server.messages(), 1);
}

#[tokio::test]
async fn no_line_of_a_header_is_a_models() {
    let server = Smtp::start(Tls::None, &[]).await;
    for (args, path) in [
        (json!({ "to": ["kim@acme.example"], "subject": "x\r\nBcc: eve@evil.example", "text": "x" }), "subject"),
        (json!({ "to": ["kim@acme.example"], "subject": "x\nX: y", "text": "x" }), "subject"),
        (json!({ "to": ["kim@acme.example"], "subject": "x\rX: y", "text": "x" }), "subject"),
        (json!({ "to": ["kim@acme.example"], "subject": " ", "text": "x" }), "subject"),
        (json!({ "to": ["Kim\r\nX: y <kim@acme.example>"], "subject": "x", "text": "x" }), "to.0"),
        (json!({ "to": ["kim@acme.example>\r\nRCPT TO:<eve@evil.example"], "subject": "x", "text": "x" }), "to.0"),
        (json!({ "to": ["kim@acme.example"], "cc": ["eve@evil.example\n"], "subject": "x", "text": "x" }), "cc.0"),
        (json!({ "to": ["kim@acme.example, eve@evil.example"], "subject": "x", "text": "x" }), "to.0"),
        (json!({ "to": ["kim@acme.example"], "subject": "x" }), "text"),
        (json!({ "to": ["kim@acme.example"], "subject": "x", "text": " ", "html": "\n" }), "text"),
    ] {
        let error = send(&server, args.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.to_failure("t").issues[0].path.as_str()), (&ToolFailureKind::Validation, path), "{args}");
    }
    assert!(server.commands().is_empty());
}

#[tokio::test]
async fn a_text_can_neither_end_the_message_nor_say_commands() {
    let evil = [
        "a\r\n.\r\nMAIL FROM:<eve@evil.example>\r\nRCPT TO:<boss@acme.example>\r\nDATA\r\nb\r\n.\r\n",
        "a\n.\nMAIL FROM:<eve@evil.example>\n",
        "a\r.\rMAIL FROM:<eve@evil.example>\r",
        "a\n.\r\nMAIL FROM:<eve@evil.example>\r\n",
        "a\r\n.\nMAIL FROM:<eve@evil.example>",
        ".\r\n..\r\n.",
        "ä\n.\nMAIL FROM:<eve@evil.example>\n",
    ];
    for text in evil {
        for field in ["text", "html"] {
            let server = Smtp::start(Tls::None, &[]).await;
            let mut args = json!({ "to": ["kim@acme.example"], "subject": "x" });
            args[field] = json!(text);
            send(&server, args).await.unwrap();
            let commands: Vec<String> = server.commands().into_iter().filter(|line| !line.starts_with("EHLO")).collect();
            assert_eq!(commands, ["MAIL FROM:<bot@acme.example>", "RCPT TO:<kim@acme.example>", "DATA", "QUIT"], "{text:?}");
            let message = server.message();
            let bare = message.replace("\r\n", "");
            assert!(!bare.contains(['\r', '\n']), "no line ends otherwise than with both: {message:?}");
        }
    }
}

#[tokio::test]
async fn a_login_goes_over_tls() {
    let server = Smtp::start(Tls::Offered, &[]).await;
    let with_login = |server: &Smtp, security| email(server, security).login("bot", Credential::env("SMTP_PASSWORD"));
    send_with(with_login(&server, Security::StartTls), hello()).await.unwrap();
    let commands = server.commands();
    let login = base64::engine::general_purpose::STANDARD.encode(format!("\0bot\0{TOKEN}"));
    assert!(commands[0].starts_with("EHLO "), "{commands:?}");
    assert_eq!(commands[1], "STARTTLS");
    assert!(commands[2].starts_with("\u{1f512}EHLO "), "{commands:?}");
    assert_eq!(commands[3], format!("\u{1f512}AUTH PLAIN {login}"));
    assert!(commands[3..].iter().all(|command| command.starts_with('\u{1f512}')), "{commands:?}");
    assert_eq!(server.messages(), 1);

    let server = Smtp::start(Tls::Always, &[]).await;
    send_with(with_login(&server, Security::Tls), hello()).await.unwrap();
    assert!(server.commands().iter().all(|command| command.starts_with('\u{1f512}')));
    assert_eq!(server.messages(), 1);

    // Whoever takes the offer of TLS away gets nothing.
    let server = Smtp::start(Tls::None, &[]).await;
    let error = send_with(with_login(&server, Security::StartTls), hello()).await.unwrap_err();
    assert!(error.message().contains("it does not offer STARTTLS"), "{error}");
    assert!(server.commands().iter().all(|command| !command.contains("AUTH") && !command.contains("MAIL")));

    // Nor does a server that somebody else made a certificate for.
    let (server, other) = (Smtp::start(Tls::Always, &[]).await, Smtp::start(Tls::Always, &[]).await);
    let error = send_with(with_login(&server, Security::Tls).trusting(other.pem), hello()).await.unwrap_err();
    assert!(error.message().starts_with("can't send the email: no secure connection to the mail server localhost: "), "{error}");
    let error =
        send_with(Email::new("127.0.0.1", "bot@acme.example").port(server.port).trusting(server.pem.clone()), hello()).await.unwrap_err();
    assert!(error.message().contains("no secure connection"), "the certificate is for another name: {error}");
    assert!(server.commands().is_empty());
}

// rule: sdk-tools 9.1/5
#[tokio::test]
async fn a_failure_says_what_the_server_said() {
    for (begins, instead, name, message) in [
        (
            "RCPT TO:<lee@",
            Instead::Say("550 5.1.1 no such user"),
            "ServiceError",
            "can't send the email: the mail server localhost refuses lee@acme.example: permanent error (550): 5.1.1 no such user; nobody got the email: put right what it names",
        ),
        (
            "MAIL",
            Instead::Say("451 4.7.1 greylisted"),
            "RateLimitError",
            "can't send the email: the mail server localhost refuses bot@acme.example: transient error (451): 4.7.1 greylisted; try again later",
        ),
        (
            "AUTH",
            Instead::Say("535 5.7.8 bad credentials"),
            "CredentialsError",
            "can't send the email: the mail server localhost does not accept the login of bot: permanent error (535): 5.7.8 bad credentials; put a valid password into the environment value `SMTP_PASSWORD`",
        ),
        (
            ".",
            Instead::Say("554 5.6.0 spam"),
            "ServiceError",
            "can't send the email: the mail server localhost refuses the message: permanent error (554): 5.6.0 spam; nobody got the email: put right what it names",
        ),
    ] {
        let server = Smtp::start(Tls::None, &[(begins, instead)]).await;
        let args = json!({ "to": ["kim@acme.example", "lee@acme.example"], "subject": "x", "text": "x" });
        let sender = email(&server, Security::Plain).login("bot", Credential::env("SMTP_PASSWORD"));
        let error = send_with(sender, args).await.unwrap_err();
        assert_eq!((error.name(), error.message()), (name, message));
        assert_eq!(server.messages(), usize::from(begins == "."));
    }
    let server = Smtp::start(Tls::None, &[]).await;
    let tool = email(&server, Security::Plain).login("bot", Credential::env("SMTP_PASSWORD")).tool().unwrap();
    let error = begin(&tool, parts(&tool, hello(), &[])).await.unwrap_err();
    assert_eq!(error.message(), "the mail server wants a credential; set the environment value `SMTP_PASSWORD`");
}

#[tokio::test]
async fn a_server_that_repeats_the_password_shows_it_to_nobody() {
    let server = Smtp::start(Tls::None, &[("AUTH", Instead::Say("535 no tok-0123456789abcdef"))]).await;
    let sender = email(&server, Security::Plain).login("bot", Credential::value(TOKEN));
    let error = send_with(sender, hello()).await.unwrap_err();
    assert!(error.message().contains("535): no [redacted:email-password]"), "{error}");
}

#[tokio::test]
async fn whether_an_email_was_sent_is_said() {
    let timeout = Duration::from_millis(500);
    for (begins, instead) in [(".", Instead::Close), (".", Instead::Silence)] {
        let server = Smtp::start(Tls::None, &[(begins, instead)]).await;
        let error = send_with(email(&server, Security::Plain).timeout(timeout), hello()).await.unwrap_err();
        assert_eq!(error.name(), "OutcomeUnknownError");
        assert!(
            error.message().starts_with("the mail server localhost was given the message and did not say whether it takes it: "),
            "{error}"
        );
        assert!(error.message().ends_with("; the email may have been sent, so ask before sending it again"), "{error}");
        assert_eq!(server.messages(), 1, "it is sent once");
    }
    for (begins, instead) in [
        ("DATA", Instead::Close),
        ("DATA", Instead::Silence),
        ("RCPT", Instead::Close),
        ("MAIL", Instead::Silence),
        ("GREETING", Instead::Silence),
        ("GREETING", Instead::Close),
        ("GREETING", Instead::Say("554 go away")),
        ("EHLO", Instead::Silence),
    ] {
        let server = Smtp::start(Tls::None, &[(begins, instead)]).await;
        let error = send_with(email(&server, Security::Plain).timeout(timeout), hello()).await.unwrap_err();
        assert_eq!(error.name(), "ServiceError", "{begins}: {error}");
        assert_eq!(server.messages(), 0);
    }
    // What goes wrong after the message was taken changes nothing.
    for instead in [Instead::Close, Instead::Say("500 what?")] {
        let server = Smtp::start(Tls::None, &[("QUIT", instead)]).await;
        assert_eq!(send(&server, hello()).await.unwrap()["sent"], true);
    }
    let gone = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let sender = Email::new("localhost", "bot@acme.example").security(Security::Plain).port(gone);
    let error = send_with(sender, hello()).await.unwrap_err();
    assert!(error.message().ends_with("; check that it can be reached, then try again"), "{error}");
}

#[tokio::test]
async fn only_allowed_addresses_get_an_email() {
    let server = Smtp::start(Tls::None, &[]).await;
    let sender = email(&server, Security::Plain).allowed_recipients(["*@acme.example"]).max_recipients(2);
    for (args, path) in [
        (json!({ "to": ["kim@evil.example"], "subject": "x", "text": "x" }), "to.0"),
        (json!({ "to": ["kim@acme.example"], "bcc": ["kim@acme.example.evil.example"], "subject": "x", "text": "x" }), "bcc.0"),
        (json!({ "to": ["a@acme.example", "b@acme.example"], "cc": ["c@acme.example"], "subject": "x", "text": "x" }), "cc.0"),
    ] {
        assert_eq!(send_with(sender.clone(), args).await.unwrap_err().to_failure("t").issues[0].path, path);
    }
    assert!(server.commands().is_empty());
    send_with(sender, hello()).await.unwrap();
}

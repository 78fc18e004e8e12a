use toolwright_tool::prelude::*;

#[tool]
async fn generic<T: Send>(value: T) {}

#[tool]
async fn lifetime<'a>(value: &'a str) {}

#[tool]
const fn constant() {}

#[tool]
async unsafe fn dangerous() {}

#[tool]
extern "C" fn foreign() {}

struct Service;

impl Service {
    #[tool]
    async fn method(&self, city: String) {}
}

fn main() {}

//! Both stores keep one contract: memory, and DynamoDB through the fault front; a second emulator agrees.

mod contract;
mod second_opinion;

/// Makes each function of the contract a test of the memory store and one of DynamoDB.
macro_rules! keep {
    ($($name:ident)*) => {
        mod memory {
            use super::contract::Bench;
            use leasekeeper_extension::store::MemoryStore;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::contract::$name(Bench::Memory(MemoryStore::new())).await;
            })*
        }
        mod dynamodb {
            use super::contract::Bench;
            use testkit::dynamo::Dynamo;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let dynamo = Dynamo::start().await;
                let store = dynamo.store();
                super::contract::$name(Bench::DynamoDb(dynamo.into(), store.into())).await;
            })*
        }
        mod ministack {
            use super::second_opinion::Ministack;

            /// In one test: the emulator takes a second to start.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn agrees() {
                let ministack = Ministack::start().await;
                $(super::contract::$name(ministack.bench(stringify!($name)).await).await;)*
            }
        }
    };
}

keep! {
    create_writes_the_whole_row
    create_fails_with_the_row_that_is_there
    replace_writes_the_whole_row_and_drops_what_else_was_there
    replace_fails_unless_owner_and_version_are_those
    read_finds_the_row_and_who_holds_it
    renew_moves_the_version_and_nothing_else
    renew_fails_unless_owner_and_version_are_those
    delete_removes_the_row
    delete_fails_unless_the_owner_is_that
    foreign_rows_are_named_and_left_alone
    unusual_rows_of_the_protocol_are_accepted
    keys_of_every_length_are_kept_apart
    of_32_creators_one_wins
    of_32_takeovers_one_wins
}

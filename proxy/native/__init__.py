"""Clients of brokers that give idempotence themselves (mode native): bytes pass unchanged, only addresses are the
proxy's."""

"""Commands that run or mend: brokers and the demonstration, upkeep, health, the catalog."""

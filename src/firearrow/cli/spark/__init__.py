"""`firearrow spark JOB`: the options, engine and output of the jobs in firearrow.spark. May import spark, admin and client."""

"""Writing side of the data source: conversion of rows into messages, queue choice and sequence numbers.

May import: the modules of firearrow.spark, firearrow.spark.read.offsets, firearrow.spark.decode, client, wire.
"""
